"""The training examples as a user runs them: a few steps, resume, the picture, and what they say about mistakes."""

from __future__ import annotations

import os
import pathlib
import pickle
import pty
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest

import megengine as mge

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = {
    "digits_lenet": ["--train-only", "--batch-size", "16", "--threads", "1"],
    "resnet18": ["--batch-size", "4", "--threads", "1"],
    "transformer_lm": ["--batch-size", "4", "--threads", "1"],
}


def command(example: str, out: pathlib.Path, *options: str) -> list[str]:
    return [sys.executable, str(ROOT / "examples" / f"{example}.py"), *EXAMPLES[example], "--out", str(out), *options]


def run(example: str, out: pathlib.Path, *options: str) -> str:
    done = subprocess.run(command(example, out, *options), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def refused(monkeypatch, capsys):
    """Runs the transformer example in this process with a mistake; its exit code and what it says."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import transformer_lm

    def attempt(out: pathlib.Path, *options: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as exit:
            transformer_lm.main(command("transformer_lm", out, *options)[2:])
        said = exit.value.code
        return (1, said) if isinstance(said, str) else (said, capsys.readouterr().err)

    before = mge.device.get_num_threads()
    yield attempt
    mge.device.set_num_threads(before)


def read_png(path: pathlib.Path) -> np.ndarray:
    """Pixels (h, w, 3) of a PNG without filters, every checksum verified."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, pixels, size = 8, b"", (0, 0)
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", data, at + 8 + length) == (zlib.crc32(kind + body),)
        if kind == b"IHDR":
            size = struct.unpack_from(">II", body)
        pixels += body if kind == b"IDAT" else b""
        at += 12 + length
    rows = np.frombuffer(zlib.decompress(pixels), np.uint8).reshape(size[1], 1 + 3 * size[0])
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(size[1], size[0], 3)


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_resumed_run_writes_the_same_checkpoint(example: str, tmp_path) -> None:
    whole, half, rest = (str(tmp_path / f"{name}.pkl") for name in ("whole", "half", "rest"))
    text = run(example, tmp_path, "--steps", "6", "--save", whole)
    assert "6/6 steps, loss" in text and "\r" not in text
    run(example, tmp_path, "--steps", "3", "--save", half)
    # the learning rate comes from the checkpoint
    text = run(example, tmp_path, "--steps", "6", "--resume", half, "--save", rest, "--lr", "7", "--threads", "2")
    assert "3/6" not in text and "4/6" in text
    want, got = mge.load(whole), mge.load(rest)
    assert len(got["losses"]) == 6 and len(mge.load(half)["losses"]) == 3
    assert pickle.dumps(want) == pickle.dumps(got)
    picture = read_png(tmp_path / "loss.png")
    assert (picture == (31, 119, 180)).all(axis=2).sum() > 300  # a line in the chart's first colour


@pytest.mark.parametrize(
    ("example", "options", "below"),
    [
        ("digits_lenet", ["--steps", "150", "--batch-size", "32"], 0.8),
        ("resnet18", ["--steps", "15", "--batch-size", "16"], 0.8),
        ("transformer_lm", ["--steps", "60", "--batch-size", "16"], 0.7),
    ],
)
def test_the_loss_falls(example: str, options: list[str], below: float, tmp_path) -> None:
    run(example, tmp_path, *options, "--save", str(tmp_path / "run.pkl"))
    losses = mge.load(str(tmp_path / "run.pkl"))["losses"]
    assert np.mean(losses[-5:]) < below * losses[0]


def test_the_demo_deploys_with_the_same_bits(tmp_path) -> None:
    """`make demo`, half as long: 97 % of the test images, and identical logits from every way to run the model."""
    line = [sys.executable, str(ROOT / "examples" / "digits_lenet.py"), "--steps", "700", "--out", str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "identical: yes" in done.stdout
    assert all(name in done.stdout for name in ("eager", "traced", "load_and_run", "C program", "megenginelite"))


def test_a_traced_module_runs_where_its_code_is_not(tmp_path) -> None:
    line = [sys.executable, str(ROOT / "examples" / "traced_module.py"), "--out", str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "another process, the same bits: True" in done.stdout and "relu: 0\ngelu: 2\n" in done.stdout
    assert "without batch normalisation: 0 gap" in done.stdout


@pytest.mark.parametrize("data, least", [("digits", 0.95), ("synthetic", 0.8)])
def test_quantisation_keeps_the_values_and_shrinks_the_file(data: str, least: float, tmp_path) -> None:
    line = [sys.executable, str(ROOT / "examples" / "quantize_resnet.py"), "--data", data, "--out", str(tmp_path)]
    done = subprocess.run([*line, "--steps", "80", "--qat-steps", "20"], capture_output=True, text=True)
    assert done.returncode == 0 and "identical: yes" in done.stdout, done.stdout + done.stderr
    assert (tmp_path / "int8.mge").stat().st_size < 0.35 * (tmp_path / "float.mge").stat().st_size
    rows = [
        words
        for words in map(str.split, done.stdout.splitlines())
        if words[:1] in (["float"], ["QAT"], ["int8"], ["int8,"])
    ]
    assert len(rows) == 4 and all(float(next(w for w in r if "%" in w)[:-1]) / 100 > least for r in rows), done.stdout


def test_a_bar_on_a_terminal(tmp_path) -> None:
    master, terminal = pty.openpty()
    done = subprocess.run(command("transformer_lm", tmp_path, "--steps", "3"), stdout=terminal, check=True)
    os.close(terminal)
    text = b""
    while chunk := _read(master):
        text += chunk
    os.close(master)
    assert done.returncode == 0
    assert b"\r  [##########                    ] 1/3 steps, loss" in text
    assert b"\r  [##############################] 3/3 steps, loss" in text


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 4096)
    except OSError:  # what Linux says when the other end is closed
        return b""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--steps", "0"], "argument --steps: must be above 0; got 0"),
        (["--steps", "many"], "argument --steps: invalid int value: 'many'"),
        (["--lr", "nan"], "argument --lr: must be above 0; got nan"),
        (["--batch-size", "-3"], "argument --batch-size: must be above 0; got -3"),
        (["--threads", "1000"], "argument --threads: set_num_threads: the count must be 1..256; got 1000"),
        (["--save", "no/such/folder/x.pkl"], "argument --save: the folder of no/such/folder/x.pkl does not exist"),
        (["--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_bad_options_are_named(options: list[str], says: str, tmp_path, refused) -> None:
    code, text = refused(tmp_path, *options)
    assert code == 2 and says in text


def test_an_output_folder_that_is_a_file(tmp_path, refused) -> None:
    (tmp_path / "file").write_text("")
    code, text = refused(tmp_path / "file")
    assert code == 2 and "argument --out: cannot make the folder" in text


def test_bad_checkpoints_are_named(tmp_path, refused) -> None:
    good = tmp_path / "good.pkl"
    run("transformer_lm", tmp_path, "--steps", "2", "--save", str(good))
    state = mge.load(str(good))

    def says(name: str, content: bytes | dict[str, object] | list[int] | None, *options: str) -> str:
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content is not None:
            mge.save(content, str(path))
        code, text = refused(tmp_path, "--steps", "4", "--resume", str(path), *options)
        assert code == 1 and str(path) in text
        return text

    assert "No such file or directory" in says("missing.pkl", None)
    assert "not a checkpoint file" in says("noise.pkl", bytes(range(256)))
    assert "not a checkpoint file" in says("empty.pkl", b"")
    assert "not a checkpoint file" in says("cut.pkl", good.read_bytes()[:-1000])
    assert "not a checkpoint file" in says("damaged.pkl", good.read_bytes().replace(b"f4", b"z9"))
    assert "missing a list" in says("list.pkl", [1, 2])
    assert "missing optimizer, random" in says(
        "part.pkl", {k: v for k, v in state.items() if k not in ("random", "optimizer")}
    )
    assert "the run is at step 4; --steps must be above that" in says("over.pkl", {**state, "losses": [1.0] * 4})
    assert "started with --batch-size 4; got 8" in says("good.pkl", None, "--batch-size", "8")
    other = {k: v for k, v in state["net"].items() if k != "head.bias"}
    assert "the net state does not fit this example: " in says("other.pkl", {**state, "net": other})
    assert "the net state does not fit this example: " in says("odd.pkl", {**state, "net": [1]})
    assert "the optimizer state does not fit this example: " in says("opt.pkl", {**state, "optimizer": {}})
    assert "the random state does not fit this example: " in says("random.pkl", {**state, "random": {"seed": 1}})
    code, text = refused(tmp_path, "--batch-size", "5000")
    assert code == 1 and "--batch-size 5000 is more than the 2048 samples there are" in text
