"""Files are replaced whole or not at all, by one mechanism, and whoever has the old one keeps it."""

from __future__ import annotations

import errno
import io
import os
import re
import resource
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megenginelite as lite
from megengine import Tensor, jit, safetensors
from megengine.core.files import replacing
from megengine.utils.comp_graph_tools import GraphInference
from megengine.utils.http_download import HTTPDownloadError, download_from_url

ROOT = Path(__file__).resolve().parent.parent.parent


def model(value: float, n: int = 300_000) -> Any:
    """A traced function whose weight is ``value`` everywhere; its file is large enough to be mapped."""
    weight = Tensor(np.full(n, value, "float32"))

    @jit.trace(symbolic=True, capture_as_const=True)
    def add(x: Tensor) -> Tensor:
        return x + weight

    add(Tensor(np.zeros(n, "float32")))
    return add


WRITERS: dict[str, Callable[[Any], object]] = {
    "save": lambda path: mge.save({"w": np.arange(5000)}, path),
    "dump": lambda path: model(1.0, 5000).dump(path, arg_names=["x"]),
    "safetensors": lambda path: safetensors.save_file({"w": np.arange(5000)}, path),
}


def left_in(folder: Path) -> list[str]:
    return [p for p in os.listdir(folder) if ".part" in p]


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_the_old_file_and_names_the_path(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(OSError, match=r"cannot write: files may not become this large here .* '.*/file'") as e:
            WRITERS[name](path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert e.value.errno == errno.EFBIG and e.value.filename == str(path)
    assert path.read_bytes() == b"old" and not left_in(tmp_path)


@pytest.mark.parametrize("name", WRITERS)
def test_a_missing_folder_is_named_as_the_user_wrote_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / "no" / "such" / "file"
    with pytest.raises(FileNotFoundError) as e:
        WRITERS[name](path)
    assert str(e.value) == (
        f"[Errno 2] cannot write: the folder {path.parent} does not exist. Make it first.: {str(path)!r}"
    )
    with pytest.raises(IsADirectoryError, match="this is a folder"):
        WRITERS[name](tmp_path)


@pytest.mark.parametrize("name", WRITERS)
def test_mode_links_pipes_and_files_of_earlier_crashes(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    WRITERS[name](path)
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    path.chmod(0o640)
    (tmp_path / "link").symlink_to("file")
    # What made saving no longer atomic: a file of a crashed process with the same number.
    (tmp_path / f"file.{os.getpid()}.part").write_bytes(b"of another container")
    number = path.stat().st_ino
    WRITERS[name](tmp_path / "link")
    assert path.stat().st_ino != number and (tmp_path / "link").is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    memory = io.BytesIO()
    WRITERS[name](memory)
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", str(tmp_path / "pipe")], stdout=subprocess.PIPE)
    WRITERS[name](tmp_path / "pipe")
    assert len(reader.communicate(timeout=30)[0]) == len(memory.getvalue())


def test_a_read_only_file_is_not_replaced(tmp_path: Path) -> None:
    if os.geteuid() == 0:  # root may write everything; what others meet is told by a process that is not
        code = "import os; os.setuid(65534)\n"
        tmp_path.chmod(0o777)
        for parent in tmp_path.parents:
            if parent != Path("/") and parent != Path("/tmp"):
                parent.chmod(parent.stat().st_mode | 0o011)
    else:
        code = ""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o444)
    (tmp_path / "closed").mkdir(mode=0o555)
    (tmp_path / "closed").chmod(0o555)
    code = (
        "import sys\nfrom megengine.core.files import replacing\n"
        + code
        + textwrap.dedent(
            f"""
            for path in ({str(path)!r}, {str(tmp_path / "closed" / "new")!r}):
                try:
                    with replacing(path) as f:
                        f.write(b"new")
                except PermissionError as e:
                    print(e)
            """
        )
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    first, second = done.stdout.splitlines()
    assert "the file is read-only. Change its permissions" in first and repr(str(path)) in first
    assert "no permission to make a file in the folder" in second and "closed" in second
    assert path.read_bytes() == b"old"


def test_errors_of_the_block_leave_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    for error in (KeyboardInterrupt(), OSError(errno.ENOENT, "another file", "other"), ValueError("x")):
        with pytest.raises(type(error)) as e:
            with replacing(path) as f:
                f.write(b"half")
                raise error
        assert e.value is error
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


def test_a_mapped_network_computes_with_the_old_weights_while_the_file_is_dumped_anew(tmp_path: Path) -> None:
    path = tmp_path / "net.mge"
    old, new = model(1.0), model(2.0)
    old.dump(path, arg_names=["x"])
    assert path.stat().st_size > 1 << 20  # mapped from there on
    net = lite.LiteNetwork()
    net.load(path)
    graph = GraphInference(str(path))
    x = np.zeros(300_000, "float32")

    def results() -> tuple[float, float]:
        net.get_io_tensor("x").set_data_by_copy(x)
        net.forward()
        net.wait()
        y = net.get_io_tensor(net.get_output_name(0)).to_numpy()
        (z,) = graph.run(x).values()
        assert (y == y[0]).all() and (np.asarray(z) == np.asarray(z)[0]).all()
        return float(y[0]), float(np.asarray(z)[0])

    for _ in range(5):
        assert results() == (1.0, 1.0)
        new.dump(path, arg_names=["x"])
    assert results() == (1.0, 1.0)
    fresh = lite.LiteNetwork()
    fresh.load(path)
    fresh.get_io_tensor("x").set_data_by_copy(x)
    fresh.forward()
    fresh.wait()
    assert fresh.get_io_tensor(fresh.get_output_name(0)).to_numpy()[0] == 2.0


def test_kills_lose_nothing(tmp_path: Path) -> None:
    """120 of them while a model is dumped: today's file is always one of the two that were written."""
    path = tmp_path / "net.mge"
    functions = [model(1.0, 20_000), model(2.0, 20_000)]
    whole = []
    for f in functions:
        f.dump(path, arg_names=["x"])
        whole.append(path.read_bytes())
    rng = np.random.default_rng(0)
    for _ in range(120):
        pid = os.fork()
        if pid == 0:
            try:
                while True:
                    for f in functions:
                        f.dump(path, arg_names=["x"])
            finally:
                os._exit(1)
        time.sleep(rng.random() * 0.01)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert path.read_bytes() in whole
        assert len(os.listdir(tmp_path)) <= 2
    mge.save([1], tmp_path / "other")
    assert sorted(os.listdir(tmp_path)) == ["net.mge", "other"]


def test_a_broken_download_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"abc" * 1000)
    download_from_url(source.as_uri(), str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    with pytest.raises(HTTPDownloadError):
        download_from_url((tmp_path / "none").as_uri(), str(tmp_path / "copy2"))
    assert sorted(os.listdir(tmp_path)) == ["copy", "source"]


#: Files that open for writing themselves, and why.
OTHERS = {
    "src/base/write_file.cpp": "the writer",
    "python/megengine/core/files.py": "its Python side",
    "python/megengine/logger.py": "a log that grows while the program runs",
    "python/megengine/utils/persistent_cache.py": "the lock file beside the cache",
    "python/megengine/distributed/server.py": "the null device, in the place of its owner's output",
    "src/base/small_file.cpp": "a file of a line or two, which it reads",
    "src/dist/shm.cpp": "memory that processes share",
    "python/megengine/core/_inference.py": "a file without a name that Lite writes a profile to",
    "python/megengine/tools/graph_view/__init__.py": "the same",
    "python/megengine/tools/_command.py": "the null device, when the reader of a pipe has gone",
    "src/lite/run/program.cpp": "the null device, in the place of a closed standard stream",
    "python/megengine/utils/custom_op_tools.py": "the lock file, and the library that a compiler has written",
}
OPENS = re.compile(
    r"""\bopen\([^)]*,\s*["'][rbt]*[wax+][rbt+]*["']|\bfopen\(|\bofstream\b|O_WRONLY|O_RDWR|O_CREAT|"""
    r"""write_bytes\(|write_text\(|mkstemp|NamedTemporaryFile|os\.replace\(|\brename\("""
)


def test_there_is_one_writer() -> None:
    found = {}
    for folder, kinds in (("src", ("*.cpp", "*.h")), ("python/megengine", ("*.py",)), ("python/bindings", ("*.cpp",))):
        for kind in kinds:
            for path in (ROOT / folder).rglob(kind):
                lines = path.read_text().splitlines()
                hits = [t.strip() for t in lines if OPENS.search(t) and not t.strip().startswith((">>>", "//", "#"))]
                if hits:
                    found[str(path.relative_to(ROOT))] = hits
    # Folders that were unpacked take their place by rename; they are not written by us.
    unpacked = {"python/megengine/hub/fetcher.py", "python/megengine/data/dataset/vision/imagenet.py"}
    for path in unpacked & found.keys():
        assert all("rename(" in t or "replace(" in t for t in found.pop(path)), path
    assert set(found) <= set(OTHERS), {k: v for k, v in found.items() if k not in OTHERS}


def test_standard_output_can_be_written_to(tmp_path: Path) -> None:
    code = "import numpy as np\nfrom megengine import safetensors\nprint('first', flush=True)\n"
    code += "safetensors.save_file({'a': np.zeros(4, 'float32')}, '/dev/stdout')\nprint('last')"
    with open(tmp_path / "out", "wb") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True, timeout=60)
    text = (tmp_path / "out").read_bytes()
    assert text.startswith(b"first\n") and text.endswith(b"last\n") and len(text) == len(b"first\nlast\n") + 80
    piped = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, timeout=60)
    assert len(piped.stdout) == len(text)
