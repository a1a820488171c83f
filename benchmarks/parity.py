"""Trains LeNet and the examples' networks here and in PyTorch from the same weights, compares losses step by step,
and exchanges tensors through DLPack with both in one process (dlpack.py), imported in either order.

    python benchmarks/parity.py --torch-python .venv-bench-torch/bin/python [--steps 20] [--tolerance 1e-4]

Exits with 1 when some loss differs by more than the tolerance (relative) or an exchange fails.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent

TORCH_SIDE = """
import json, sys
import numpy as np, torch
import torch.nn.functional as F
sys.path.insert(0, sys.argv[1])
from lenet_data import batch
from peer_torch import LeNet
net = LeNet()
data = np.load(sys.argv[2])
net.load_state_dict({k: torch.from_numpy(data[k].reshape(tuple(v.shape))) for k, v in net.state_dict().items()})
kind = torch.optim.SGD if sys.argv[3] == "sgd" else torch.optim.Adam
opt = kind(net.parameters(), **json.loads(sys.argv[4]))
x, y = (torch.from_numpy(v) for v in batch())
losses = []
for _ in range(int(sys.argv[5])):
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y.long())
    loss.backward()
    opt.step()
    losses.append(float(loss))
print(json.dumps(losses))
"""


def ours(optimizer: str, options: dict[str, float], steps: int, weights: str) -> list[float]:
    from lenet_data import batch
    from peer_mge import LeNet

    import megengine as mge
    import megengine.functional as F
    import megengine.optimizer as optim
    from megengine.autodiff import GradManager

    mge.random.seed(1)
    net = LeNet()
    np.savez(weights, **{k: np.asarray(v) for k, v in net.state_dict().items()})
    gm = GradManager().attach(net.parameters())
    opt = (optim.SGD if optimizer == "sgd" else optim.Adam)(net.parameters(), **options)
    x, y = (mge.Tensor(v) for v in batch())
    losses = []
    for _ in range(steps):
        with gm:
            loss = F.nn.cross_entropy(net(x), y)
            gm.backward(loss)
        opt.step()
        opt.clear_grad()
        losses.append(float(loss))
    return losses


def exchange(torch_python: str, *order: str) -> bool:
    """dlpack.py in PyTorch's environment, with our package beside it."""
    import megengine

    env = {**os.environ, "PYTHONPATH": str(pathlib.Path(megengine.__file__).resolve().parent.parent)}
    sys.stdout.flush()  # the lines so far come first
    done = subprocess.run([torch_python, str(HERE / "dlpack.py"), *order], env=env)
    if done.returncode not in (0, 1):
        print(f"DLPack ({', then '.join(order)}): ended with status {done.returncode}.")
    return done.returncode == 0


def compare_examples(torch_python: str, steps: int) -> float:
    """The networks of examples/; returns the largest relative difference."""
    from parity_mge import losses

    args = [torch_python, str(HERE / "parity_torch.py"), "--steps", str(steps)]
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the PyTorch side failed:\n{done.stderr}")
    worst = 0.0
    for case, theirs in json.loads(done.stdout.splitlines()[-1]).items():
        mine = losses(case, steps)
        apart = max(abs(m - t) / abs(t) for m, t in zip(mine, theirs, strict=True))
        worst = max(worst, apart)
        print(f"example {case}, {steps} steps: {mine[0]:.6f} -> {mine[-2]:.6f}, largest difference {apart:.1e}")
    return worst


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--torch-python", required=True)
    ap.add_argument("--steps", type=int, default=20)
    ap.add_argument("--tolerance", type=float, default=1e-4)
    a = ap.parse_args()
    torch_python = str(pathlib.Path(a.torch_python).absolute())
    worst = 0.0
    for optimizer, options in (
        ("sgd", {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4}),
        # With the default eps of 1e-8 Adam divides rounding noise by rounding noise where a gradient is almost 0, and
        # differences of 1e-7 grow tenfold every three steps in whichever framework; 1e-4 keeps them where they are.
        ("adam", {"lr": 1e-3, "weight_decay": 1e-4, "eps": 1e-4}),
    ):
        with tempfile.TemporaryDirectory() as folder:
            weights = str(pathlib.Path(folder) / "weights.npz")
            mine = ours(optimizer, options, a.steps, weights)
            args = [torch_python, "-c", TORCH_SIDE, str(HERE), weights, optimizer, json.dumps(options), str(a.steps)]
            done = subprocess.run(args, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"the PyTorch side failed:\n{done.stderr}")
            theirs = json.loads(done.stdout.splitlines()[-1])
        apart = max(abs(m - t) / max(abs(t), 1e-12) for m, t in zip(mine, theirs))
        worst = max(worst, apart)
        print(f"LeNet, {optimizer:4}, {a.steps} steps: {mine[0]:.6f} -> {mine[-1]:.6f}, largest difference {apart:.1e}")
    worst = max(worst, compare_examples(torch_python, a.steps))
    names = ("megengine", "torch")
    shared = [exchange(torch_python, *order) for order in (names, names[::-1])]
    faults = [] if worst <= a.tolerance else [f"losses differ by {worst:.1e} > {a.tolerance:.1e}"]
    faults += [] if all(shared) else ["an exchange through DLPack failed, see above"]
    print("parity: " + (f"NO, {'; '.join(faults)}" if faults else "yes"))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
