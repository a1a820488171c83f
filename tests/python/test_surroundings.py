"""Odd surroundings: names that are no text, full disks, closed streams, a folder that is gone, little memory."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import megengine as mge
from megengine import Tensor
from megengine.core import _core

ROOT = Path(__file__).resolve().parent.parent.parent
BIN = ROOT / "build" / "dev" / "bin"
NET = ROOT / "tests" / "data" / "lite" / "net_v1.mge"
NO_TEXT = "\udcff"  # as Python shows a byte that is no UTF-8


def shell(line: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    known = {"LR": str(BIN / "load_and_run"), "ML": str(BIN / "mge-lite"), "PY": sys.executable, "NET": str(NET)}
    known = {**os.environ, **known, **env}
    return subprocess.run(["bash", "-c", line], cwd=cwd, capture_output=True, text=True, timeout=100, env=known)


# ---- names that are no text


def test_strings_that_are_no_text_are_refused_or_taken() -> None:
    x = Tensor([1.0, 2.0])
    with pytest.raises(ValueError, match="format"):
        x.format = NO_TEXT
    with pytest.raises(RuntimeError, match=r"device.*udcff"):
        Tensor([1.0], device=NO_TEXT)
    with pytest.raises(RuntimeError, match="udcff"):
        _core.ops.reduce(x, mode=NO_TEXT, axes=[0])
    with pytest.raises((RuntimeError, UnicodeError)):
        _core.ops.reduce(x, **{NO_TEXT: 1})
    for info in (_core.op_info, _core.op_class_info):
        with pytest.raises(RuntimeError, match="udcff"):
            info(NO_TEXT)
    with pytest.raises(ValueError, match="dtype"):
        x.astype(NO_TEXT)
    x.name = NO_TEXT
    assert x.name == NO_TEXT


SCRIPT = """
import json, os, sys
import megengine as mge, megengine.functional as F, megengine.module as M
import megenginelite as lite
from megengine.jit import trace
from megengine.utils.network import Network
from megengine.utils.profiler import Profiler

here = os.getcwd()
x = mge.Tensor([1.0, 2.0])

@trace(symbolic=True, capture_as_const=True)
def f(x):
    return F.reshape(x, (2, 1)) * 2

f(x)
f.dump(here + "/net.mge", arg_names=["x"])
mge.save({"x": x}, here + "/x.pkl")
assert mge.load(here + "/x.pkl")["x"].numpy().tolist() == [1.0, 2.0]
net = lite.LiteNetwork()
net.load(here + "/net.mge")
net.get_io_tensor("x").layout = lite.LiteLayout([3], "float32")
for wrong in (net.forward, lambda: F.reshape(x, (3,)), lambda: f.dump(here + "/no/net.mge"),
              lambda: lite.LiteNetwork().load(here + "/none.mge"), lambda: Network.load(here + "/none.mge")):
    try:
        wrong()
    except Exception as e:
        text = str(e)
        assert "reshape" in text or "no" in text, text
        print(type(e).__name__)
with Profiler(here + "/profile") as p:
    f(x)
for name in os.listdir(here + "/profile"):
    json.load(open(here + "/profile/" + name))
"""


@pytest.mark.parametrize("name", [b"\xff\xfe\xe4", "日本 ü".encode()], ids=["bytes", "letters"])
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_program_in_a_folder_with_an_odd_name(tmp_path: Path, name: bytes, locale: str) -> None:
    """Its lines are in errors, in dumped files and in profiles."""
    folder = os.fsencode(tmp_path) + b"/" + name
    os.mkdir(folder)
    script = os.path.join(folder, b"program.py")
    Path(os.fsdecode(script)).write_text(SCRIPT)
    env = {**os.environ, "LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, script], cwd=folder, capture_output=True, timeout=100, env=env)
    assert done.returncode == 0, done.stderr
    kinds = ["RuntimeError", "UserError", "FileNotFoundError", "ModelNotFoundError", "FileNotFoundError"]
    assert done.stdout.decode().split() == kinds
    info = subprocess.run([BIN / "mge-lite", "info", "--json", folder + b"/net.mge"], capture_output=True, timeout=60)
    assert info.returncode == 0 and info.stdout.decode("utf-8"), info.stderr  # its text is text
    net = folder + b"/net.mge"
    runs = subprocess.run([BIN / "load_and_run", net, b"--out_npy", folder + b"/o"], capture_output=True, timeout=60)
    assert runs.returncode == 0 and len(os.listdir(folder + b"/o")) == 1, runs.stderr


# ---- streams

PRINTERS = [
    "$LR --help",
    "$LR --version",
    "$LR $NET --iter 1",
    "$ML --help",
    "$ML info $NET",
    "$ML info $NET --json",
    "$ML needs $NET",
    "$ML show $NET",
    "$ML verify $NET",
]


@pytest.mark.parametrize("command", PRINTERS)
def test_output_that_cannot_be_written_is_an_error(tmp_path: Path, command: str) -> None:
    done = shell(f"{command} >/dev/full", tmp_path)
    assert done.returncode in (1, 2)
    assert ": cannot write all of the output" in done.stderr, done.stderr


def test_closed_streams_leave_files_alone(tmp_path: Path) -> None:
    """A file that is opened then has the number of a standard stream; what is printed must not go into it."""
    line = "$LR $NET --iter 1 --out_npy {0} --profile {0}.json --io_dump {0}.txt --model_dump {0}.mge"
    open_, closed = shell(line.format("open"), tmp_path), shell(line.format("closed") + " <&- >&- 2>&-", tmp_path)
    assert open_.returncode == closed.returncode == 0, open_.stderr + closed.stderr
    for name in ["{0}/logits.npy", "{0}/prob.npy", "{0}.txt", "{0}.mge"]:
        assert (tmp_path / name.format("closed")).read_bytes() == (tmp_path / name.format("open")).read_bytes(), name
    assert (tmp_path / "closed.json").read_text().endswith("}")


def test_python_without_streams(tmp_path: Path) -> None:
    code = "import megengine as m; m.save({'x': m.Tensor([1.0])}, 'x.pkl'); assert m.load('x.pkl')['x'].item() == 1"
    assert shell(f'$PY -c "{code}" <&- >&- 2>&-', tmp_path).returncode == 0


# ---- what the system does not give


def test_a_file_beyond_the_limit_is_an_error(tmp_path: Path) -> None:
    for command in ("$LR $NET --iter 1 --out_npy o", "$ML strip $NET small.mge"):
        done = shell(f"ulimit -f 0; {command} 2>&1 | cat", tmp_path)
        assert "cannot write" in done.stdout, done.stdout + done.stderr


def test_more_threads_than_there_is_memory_for(tmp_path: Path) -> None:
    done = shell("ulimit -v 400000; $LR $NET --iter 1 --thread 200", tmp_path)
    assert done.returncode == 1
    assert "load_and_run: " in done.stderr and "terminate" not in done.stderr, done.stderr
    done = shell("ulimit -v 400000; $LR $NET --iter 1 --multithread 200", tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    code = """
        import megengine as mge, megenginelite as lite
        from megengine.jit import trace
        f = trace(lambda x: x + 1, symbolic=True, capture_as_const=True)
        x = mge.Tensor([1.0])
        f(x)
        for write in (lambda: mge.save({}, "x.pkl"), lambda: f.dump("net.mge"), lambda: lite.LiteNetwork().load("a")):
            try:
                write()
            except FileNotFoundError as e:
                print(e.filename)
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(code))
    done = shell("mkdir gone && cd gone && rmdir ../gone && $PY ../program.py", tmp_path)
    if done.returncode:  # a shell may not name what is above a folder that is gone
        done = shell(f"mkdir -p gone && cd gone && rmdir ../gone && $PY {tmp_path}/program.py", tmp_path)
    assert (done.stdout, done.stderr) == ("x.pkl\nnet.mge\na\n", "")


def test_an_empty_environment_and_folders_that_take_nothing(tmp_path: Path) -> None:
    code = """
        import megengine as mge, megengine.functional as F
        mge.config.benchmark_kernel = True
        print(F.matmul(mge.Tensor([[1.0]]), mge.Tensor([[2.0]])).item())
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(code))
    for env in ("", "HOME=/proc XDG_CACHE_HOME=/proc/x", "HOME=/nonexistent", "MGE_FASTRUN_CACHE_DIR=/dev/null"):
        done = shell(f"env -i {env} $PY program.py", tmp_path)
        assert (done.stdout, done.stderr) == ("2.0\n", ""), env
        done = shell(f"env -i {env} $LR $NET --iter 1 --fast_run", tmp_path)
        assert done.returncode == 0, done.stderr
    assert mge.config.benchmark_kernel is False
