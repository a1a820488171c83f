"""A run that was saved to a file and resumed in fresh objects equals an uninterrupted one, bit for bit.

The network has batch norm (statistics) and dropout (random state), the data come from a shuffling DataLoader, and the
learning rate follows a schedule; every way of running a step and every optimizer with state goes through it.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor, amp
from megengine.autodiff import GradManager
from megengine.data import DataLoader, RandomSampler
from megengine.data import transform as T
from megengine.data.dataset import ArrayDataset
from megengine.jit import trace
from megengine.optimizer import LAMB, SGD, Adadelta, Adagrad, Adam, AdamW, MultiStepLR

OPTIMIZERS = {
    "sgd": lambda p: SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "nesterov": lambda p: SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: Adam(p, lr=0.01),
    "adamw": lambda p: AdamW(p, lr=0.01, weight_decay=0.1),
    "adagrad": lambda p: Adagrad(p, lr=0.05),
    "adadelta": lambda p: Adadelta(p),
    "lamb": lambda p: LAMB(p, lr=0.01),
}
MODES = {"eager": lambda f: f, "traced": trace, "without_host": trace(without_host=True)}
RNG = np.random.RandomState(5)
DATA = ArrayDataset(RNG.randn(40, 2, 4, 4).astype("float32"), RNG.randint(0, 3, 40).astype("int32"))
PER_EPOCH = 5


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = M.Conv2d(2, 4, 3, padding=1)
        self.bn = M.BatchNorm2d(4)
        self.drop = M.Dropout(0.3)
        self.fc = M.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.drop(F.flatten(F.relu(self.bn(self.conv(x))), 1)))


class Run:
    """All that a training script holds between two steps."""

    def __init__(self, optimizer: str, mode: str) -> None:
        self.net = Net()
        self.opt = OPTIMIZERS[optimizer](self.net.parameters())
        self.schedule = MultiStepLR(self.opt, [1, 2], gamma=0.5)
        self.sampler = RandomSampler(DATA, batch_size=8, seed=3)
        gm = GradManager().attach(self.net.parameters())

        def step(x: Tensor, y: Tensor) -> Tensor:
            with gm:
                loss = F.nn.cross_entropy(self.net(x), y)
                gm.backward(loss)
            self.opt.step().clear_grad()
            return loss

        self.step = MODES[mode](step)

    def epochs(self, number: int) -> list[float]:
        losses = []
        for _ in range(number):
            for x, y in DataLoader(DATA, self.sampler):
                losses.append(self.step(Tensor(x), Tensor(y)).item())
            self.schedule.step()
        return losses

    def state(self) -> dict[str, object]:
        return {
            "net": self.net.state_dict(),
            "opt": self.opt.state_dict(),
            "schedule": self.schedule.state_dict(),
            "sampler": self.sampler.rng.get_state(legacy=False),
            "random": mge.random.get_rng_state(),
        }

    def load(self, saved: dict[str, object]) -> None:
        self.net.load_state_dict(saved["net"])
        self.opt.load_state_dict(saved["opt"])
        self.schedule.load_state_dict(saved["schedule"])
        self.sampler.rng.set_state(saved["sampler"])
        mge.random.set_rng_state(saved["random"])


def assert_same_bits(a: object, b: object, where: str = "state") -> None:
    if isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            assert_same_bits(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b)):
            assert_same_bits(x, y, f"{where}[{i}]")
    else:
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), where


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_resumed_run_equals_an_uninterrupted_one(optimizer: str, mode: str, tmp_path) -> None:
    path = str(tmp_path / "checkpoint.pkl")
    mge.random.seed(1)
    whole = Run(optimizer, mode)
    first = whole.epochs(2)
    mge.save(whole.state(), path)
    rest = whole.epochs(2)

    mge.random.seed(99)  # a new process: other weights, another random state, another order
    resumed = Run(optimizer, mode)
    resumed.load(mge.load(path))
    assert_same_bits(rest, resumed.epochs(2), "losses")
    assert_same_bits(whole.state(), resumed.state())
    assert first != rest and whole.opt.param_groups[0]["lr"] < whole.schedule.base_lrs[0]


def test_mixed_precision_with_its_scaler(tmp_path) -> None:
    """The factor grows while training and once shrinks after gradients that overflowed; it goes on with the run."""

    def make() -> tuple[Net, Adam, amp.GradScaler]:
        net = Net()
        return net, Adam(net.parameters(), lr=0.01), amp.GradScaler(init_scale=2.0**17, growth_interval=2)

    def steps(net: Net, opt: Adam, scaler: amp.GradScaler, numbers: range) -> list[float]:
        gm, losses = GradManager().attach(net.parameters()), []
        for i in numbers:
            with gm:
                with amp.autocast():
                    loss = F.nn.cross_entropy(net(Tensor(DATA[8 * i : 8 * i + 8][0])), Tensor(DATA[:8][1]))
                scaler.backward(gm, loss)
            opt.step().clear_grad()
            losses.append((loss.item(), scaler.scale_factor))
        return losses

    mge.random.seed(1)
    net, opt, scaler = make()
    steps(net, opt, scaler, range(3))
    state = {"net": net.state_dict(), "opt": opt.state_dict(), "scaler": scaler.state_dict()}
    mge.save({**state, "random": mge.random.get_rng_state()}, str(tmp_path / "c.pkl"))
    rest = steps(net, opt, scaler, range(3, 5)) + steps(net, opt, scaler, range(5))

    mge.random.seed(99)
    net, opt, scaler = make()
    saved = mge.load(str(tmp_path / "c.pkl"))
    net.load_state_dict(saved["net"])
    opt.load_state_dict(saved["opt"])
    scaler.load_state_dict(saved["scaler"])
    mge.random.set_rng_state(saved["random"])
    assert rest == steps(net, opt, scaler, range(3, 5)) + steps(net, opt, scaler, range(5))
    factors = [factor for _, factor in rest]
    assert any(a < b for a, b in zip(factors, factors[1:])) and any(a > b for a, b in zip(factors, factors[1:]))


def test_every_part_of_the_state_counts(tmp_path) -> None:
    """What the test above restores is needed: without any one part the runs part ways."""
    mge.random.seed(1)
    whole = Run("adam", "eager")
    whole.epochs(1)
    mge.save(whole.state(), str(tmp_path / "c.pkl"))
    rest = whole.epochs(1)
    for part in ("net", "opt", "sampler", "random"):
        mge.random.seed(99)
        resumed = Run("adam", "eager")
        saved = mge.load(str(tmp_path / "c.pkl"))
        resumed.load({**saved, part: resumed.state()[part]})
        assert resumed.epochs(1) != rest, part


@pytest.mark.parametrize("mode", MODES)
def test_going_back_in_the_same_objects(mode: str) -> None:
    """load_state_dict into tensors that a trace already uses, as after a loss that became NaN."""
    mge.random.seed(1)
    run = Run("adam", mode)
    run.epochs(1)
    saved = run.state()
    want = run.epochs(2)
    run.load(saved)
    assert_same_bits(want, run.epochs(2), "losses")


class Noise(T.VisionTransform):
    """A random transform, as those of images are: draws from NumPy's global generator."""

    def apply(self, sample):
        return (sample[0] + np.random.randn(*sample[0].shape).astype("float32"), *sample[1:])


def test_workers_draw_the_same_after_a_resume_between_epochs() -> None:
    sampler = RandomSampler(DATA, batch_size=8, seed=3)
    loader = DataLoader(DATA, sampler, Noise(order=("image", "image_category")), num_workers=2)
    mge.random.seed(4)
    list(loader)
    order, random = sampler.rng.get_state(legacy=False), mge.random.get_rng_state()
    want = [x for x, _ in loader]
    mge.random.seed(99)
    sampler.rng.set_state(order)
    mge.random.set_rng_state(random)
    assert_same_bits(want, [x for x, _ in loader], "batches")


def test_batches_after_a_resume_in_the_middle_of_an_epoch() -> None:
    """With a seed per epoch the order is known from epoch and position alone; nothing of the sampler is saved."""

    def batches(first: int, number: int) -> list[list[int]]:
        found, step = [], first
        while len(found) < number:
            epoch, skip = divmod(step, PER_EPOCH)
            sampler = RandomSampler(DATA, batch_size=8, seed=epoch)
            for indices in itertools.islice(sampler, skip, None):
                found.append(indices)
                step += 1
        return found[:number]

    whole = batches(0, 14)
    assert batches(7, 7) == whole[7:]
    assert whole[0] != whole[5]
