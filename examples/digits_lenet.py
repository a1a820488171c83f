"""LeNet on handwritten digits, from training to deployment, with the same bits at every stop.

    python examples/digits_lenet.py [--steps 1380] [--device gpu0] [--save run.pkl] [--resume run.pkl] [--out demo_out]

Trains in eager mode, times a traced training step, dumps the evaluation graph to a model file and runs it through
load_and_run, a C program and megenginelite. With --train-only it stops after training.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable

import numpy as np
import training
from datasets import digits

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.data.dataset import ArrayDataset
from megengine.jit import trace

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent


class LeNet(M.Module):
    """Two convolutions and three fully connected layers, sized for 8x8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = M.Conv2d(1, 16, 3, padding=1)
        self.conv2 = M.Conv2d(16, 32, 3, padding=1)
        self.relu = M.ReLU()
        self.pool = M.MaxPool2d(2)
        self.fc1 = M.Linear(32 * 2 * 2, 120)
        self.fc2 = M.Linear(120, 84)
        self.fc3 = M.Linear(84, 10)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x)))
        x = F.flatten(x, 1)
        return self.fc3(self.relu(self.fc2(self.relu(self.fc1(x)))))


def train(net: LeNet, x: np.ndarray, y: np.ndarray, options: argparse.Namespace) -> list[float]:
    gm = GradManager().attach(net.parameters())
    opt = optim.Adam(net.parameters(), lr=options.lr)
    schedule = optim.MultiStepLR(opt, milestones=[460, 920], gamma=0.5)  # counted in steps

    def step(images: mge.Tensor, labels: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.nn.cross_entropy(net(images), labels)
            gm.backward(loss)
        opt.step().clear_grad()
        schedule.step()
        return loss

    net.train()
    return training.run(options, step, ArrayDataset(x, y), net=net, optimizer=opt, schedule=schedule)


def accuracy(logits: np.ndarray, labels: np.ndarray) -> float:
    return float((logits.argmax(1) == labels).mean())


def step_times(x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Milliseconds of one training step with 64 images, eager and traced."""
    bx, by = mge.Tensor(x[:64]), mge.Tensor(y[:64])
    result = {}
    for name, wrap in (("eager", None), ("traced", trace), ("without_host", trace(without_host=True))):
        net = LeNet()
        gm = GradManager().attach(net.parameters())
        opt = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

        def step(
            x: mge.Tensor, y: mge.Tensor, net: LeNet = net, gm: GradManager = gm, opt: optim.SGD = opt
        ) -> mge.Tensor:
            with gm:
                loss = F.nn.cross_entropy(net(x), y)
                gm.backward(loss)
            opt.step()
            opt.clear_grad()
            return loss

        fn = step if wrap is None else wrap(step)
        for _ in range(10):
            fn(bx, by)
        times = []
        for _ in range(100):
            start = time.perf_counter()
            fn(bx, by)
            times.append(time.perf_counter() - start)
        result[name] = sorted(times)[50] * 1e3
    return result


def find_tool(name: str) -> str:
    """A program of this project: installed beside the interpreter, on PATH, or in the build tree."""
    places = [
        pathlib.Path(sysconfig.get_path("scripts")),
        ROOT / "build" / "dev" / "bin",
        ROOT / "build" / "release" / "bin",
    ]
    for place in places:
        if (place / name).is_file():
            return str(place / name)
    found = shutil.which(name)
    if not found:
        sys.exit(f"{name} was not found; run `make build` first")
    return found


def run_load_and_run(model: pathlib.Path, images: pathlib.Path, out: pathlib.Path) -> tuple[np.ndarray, float]:
    cmd = [find_tool("load_and_run"), str(model), "--input", f"data:{images}", "--iter", "50", "--out_npy", str(out)]
    done = subprocess.run(cmd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"load_and_run failed: {' '.join(cmd)}\n{done.stdout}{done.stderr}")
    text = done.stdout + done.stderr
    avg = float(text.split("avg_time=")[-1].split()[0].rstrip("ms"))
    return np.load(out / "logits.npy"), avg


def run_c_program(model: pathlib.Path, images: np.ndarray, out: pathlib.Path) -> tuple[np.ndarray, float]:
    import megenginelite

    lib = next((pathlib.Path(megenginelite.__file__).parent / "libs").glob("liblite*.so"))
    exe = out / "digits_c"
    cmd = [
        "cc",
        "-O2",
        str(HERE / "lite" / "c" / "run_model.c"),
        "-I",
        str(ROOT / "include"),
        str(lib),
        f"-Wl,-rpath,{lib.parent}",
    ]
    subprocess.run([*cmd, "-o", str(exe)], check=True)
    (out / "images.bin").write_bytes(images.tobytes())
    args = [str(exe), str(model), "data", str(out / "images.bin"), "logits", str(out / "logits.bin")]
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the C program failed: {' '.join(args)}\n{done.stdout}{done.stderr}")
    return np.fromfile(out / "logits.bin", np.float32).reshape(len(images), 10), float(
        "nan"
    )  # runs once, times nothing


def run_megenginelite(model: pathlib.Path, images: np.ndarray) -> tuple[np.ndarray, float]:
    from megenginelite import LiteNetwork

    net = LiteNetwork()
    net.load(str(model))
    net.get_io_tensor("data").set_data_by_copy(images)
    times = []
    for _ in range(50):
        start = time.perf_counter()
        net.forward()
        net.wait()
        times.append(time.perf_counter() - start)
    return net.get_io_tensor("logits").to_numpy().copy(), sorted(times)[25] * 1e3


def main(argv: list[str] | None = None) -> int:
    parser = training.parser(__doc__, steps=1380, batch_size=32, lr=2e-3, out=str(ROOT / "demo_out"))
    parser.add_argument("--train-only", action="store_true", help="stop after training")
    options = training.parse(parser, argv)
    out = pathlib.Path(options.out)

    mge.random.seed(42)
    x, y, test_x, test_y = digits()
    print(f"{len(x)} training and {len(test_x)} test images of 8x8 pixels")
    net = LeNet()
    start = time.perf_counter()
    train(net, x, y, options)
    print(f"  trained in {time.perf_counter() - start:.1f} s")
    if options.train_only:
        print(f"loss curve {out / 'loss.png'}")
        return 0
    mge.save(net.state_dict(), str(out / "lenet.pkl"))

    print("one training step, 64 images:")
    for name, ms in step_times(x, y).items():
        print(f"  {name:<13} {ms:7.3f} ms")

    net.eval()
    images = np.ascontiguousarray(test_x)

    def evaluate(data: mge.Tensor) -> mge.Tensor:
        return net(data)

    rows: list[tuple[str, np.ndarray, float]] = []
    batch = mge.Tensor(images)

    def timed(run: Callable[[mge.Tensor], mge.Tensor]) -> tuple[np.ndarray, float]:
        """The result and the median of the milliseconds that it took."""
        times = []
        for _ in range(50):
            start = time.perf_counter()
            run(batch).numpy()
            times.append(time.perf_counter() - start)
        return run(batch).numpy(), sorted(times)[25] * 1e3

    rows.append(("eager", *timed(evaluate)))
    traced = trace(evaluate, capture_as_const=True, without_host=True)
    traced(batch)
    rows.append(("traced", *timed(traced)))
    model = out / "lenet.mge"
    traced.dump(str(model), arg_names=["data"], output_names=["logits"])
    np.save(out / "images.npy", images)
    rows.append(("load_and_run", *run_load_and_run(model, out / "images.npy", out)))
    rows.append(("C program", *run_c_program(model, images, out)))
    rows.append(("megenginelite", *run_megenginelite(model, images)))

    print(f"\n  {'run by':<14} {'accuracy':>9} {'us/image':>9}   identical")
    reference = rows[0][1].tobytes()
    same = True
    for name, got, ms in rows:
        identical = got.tobytes() == reference
        same &= identical
        each = "-" if np.isnan(ms) else f"{ms * 1e3 / len(images):.2f}"
        print(f"  {name:<14} {accuracy(got, test_y):>8.2%} {each:>9}   {'yes' if identical else 'NO'}")
    print(f"\nmodel file {model.stat().st_size / 1024:.1f} kB, loss curve {out / 'loss.png'}")
    print(f"identical: {'yes' if same else 'NO'}")
    good = accuracy(rows[0][1], test_y) >= 0.97
    if not good:
        print("test accuracy is below 97 %")
    return 0 if same and good else 1


if __name__ == "__main__":
    sys.exit(main())
