"""A residual network from float to 8-bit integers: train, simulate, quantise, ship; the same integers at every stop.

    python examples/quantize_resnet.py [--data digits|synthetic] [--steps 400] [--qat-steps 100] [--out quantize_out]

Trains in float, goes on with simulated quantisation (QAT), turns the layers into integer ones, dumps both networks and
runs the integer file through megenginelite. The last three give the same values to the bit.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable

import numpy as np
import training
from datasets import digits, synthetic_images

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
import megengine.quantization as Q
from megengine.autodiff import GradManager
from megengine.data.dataset import ArrayDataset
from megengine.jit import trace


class Block(M.Module):
    """Two 3x3 convolutions and a way around them; the sum and its relu are one layer, so that it is quantised."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = M.ConvBnRelu2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.conv2 = M.ConvBn2d(channels, channels, 3, padding=1, bias=False)
        self.shortcut = (
            M.Identity()
            if stride == 1 and in_channels == channels
            else M.ConvBn2d(in_channels, channels, 1, stride, bias=False)
        )
        self.join = M.Elemwise("fuse_add_relu")

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return self.join(self.conv2(self.conv1(x)), self.shortcut(x))


class SmallResNet(M.Module):
    """Stubs say where integers begin and end: the mean over the image is taken in float."""

    def __init__(self, in_channels: int, classes: int = 10) -> None:
        super().__init__()
        self.quant = M.QuantStub()
        self.stem = M.ConvBnRelu2d(in_channels, 16, 3, padding=1, bias=False)
        self.blocks = M.Sequential(Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2))
        self.dequant = M.DequantStub()
        self.quant_features = M.QuantStub()
        self.fc = M.Linear(64, classes)
        self.dequant_logits = M.DequantStub()

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = self.dequant(self.blocks(self.stem(self.quant(x))))
        return self.dequant_logits(self.fc(self.quant_features(F.mean(x, axis=(2, 3)))))


def fit(net: SmallResNet, data: ArrayDataset, steps: int, batch_size: int, lr: float) -> float:
    """The mean loss of the last tenth of the steps."""
    gm = GradManager().attach(net.parameters())
    opt = optim.SGD(net.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)
    schedule = optim.MultiStepLR(opt, milestones=[steps * 6 // 10, steps * 9 // 10], gamma=0.1)

    @trace(without_host=True)
    def step(images: mge.Tensor, labels: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.nn.cross_entropy(net(images), labels)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    net.train()
    losses = []
    for images, labels in training.batches(data, batch_size, 0):
        losses.append(step(mge.Tensor(images), mge.Tensor(labels)).item())
        schedule.step()
        if len(losses) == steps:
            return float(np.mean(losses[-max(steps // 10, 1) :]))
    return float("nan")


def dump(net: M.Module, images: np.ndarray, path: pathlib.Path) -> int:
    """Writes the evaluation graph; the size of the file."""

    @trace(capture_as_const=True)
    def evaluate(data: mge.Tensor) -> mge.Tensor:
        return net(data)

    evaluate(mge.Tensor(images))
    evaluate.dump(str(path), arg_names=["data"], output_names=["logits"])
    return path.stat().st_size


def by_lite(path: pathlib.Path) -> Callable[[np.ndarray], np.ndarray]:
    from megenginelite import LiteNetwork

    network = LiteNetwork()
    network.load(str(path))

    def run(images: np.ndarray) -> np.ndarray:
        network.get_io_tensor("data").set_data_by_copy(images)
        network.forward()
        network.wait()
        return network.get_io_tensor("logits").to_numpy().copy()

    return run


def main(argv: list[str] | None = None) -> int:
    parser = training.parser(__doc__, steps=400, batch_size=32, lr=0.05, out="quantize_out")
    parser.add_argument("--data", choices=("digits", "synthetic"), default="digits", help="default digits")
    parser.add_argument("--qat-steps", type=int, default=100, help="steps with simulated quantisation (default 100)")
    options = training.parse(parser, argv)
    out = pathlib.Path(options.out)

    mge.random.seed(42)
    if options.data == "digits":
        x, y, test_x, test_y = digits()
    else:
        (x, y), (test_x, test_y) = synthetic_images(512, seed=1, size=16), synthetic_images(200, seed=2, size=16)
    data, images = ArrayDataset(x, y), np.ascontiguousarray(test_x)

    net = SmallResNet(x.shape[1])
    loss = fit(net, data, options.steps, options.batch_size, options.lr)
    net.eval()
    rows = [("float", net(mge.Tensor(images)).numpy())]
    sizes = {"float": dump(net, images, out / "float.mge")}
    print(f"float: {options.steps} steps, loss {loss:.4f}")

    Q.quantize_qat(net, qconfig=Q.ema_fakequant_qconfig)
    loss = fit(net, data, options.qat_steps, options.batch_size, options.lr / 10)
    net.eval()
    rows.append(("QAT", net(mge.Tensor(images)).numpy()))
    print(f"QAT: {options.qat_steps} steps, loss {loss:.4f}")

    Q.quantize(net)
    rows.append(("int8", net(mge.Tensor(images)).numpy()))
    sizes["int8"] = dump(net, images, out / "int8.mge")
    rows.append(("int8, Lite", by_lite(out / "int8.mge")(images)))

    print(f"\n  {'network':<12} {'accuracy':>9} {'file':>10}   values of QAT")
    simulated = rows[1][1]
    same = True
    for name, logits in rows:
        size = f"{sizes[name] / 1024:.1f} kB" if name in sizes else "-"
        identical = logits.tobytes() == simulated.tobytes()
        same &= identical or name == "float"
        what = "-" if name == "float" else "yes" if identical else "NO"
        print(f"  {name:<12} {(logits.argmax(1) == test_y).mean():>8.2%} {size:>10}   {what}")
    print(f"\nidentical: {'yes' if same else 'NO'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
