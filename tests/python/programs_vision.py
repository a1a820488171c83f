"""Other trades: segmentation, super-resolution, flow, a generator and its rival, faces, video, speech, a game."""

import functools
import math

import numpy as np
from programs_classify import draw

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import Parameter, Tensor, tensor
from megengine.autodiff import GradManager
from megengine.core._imperative_rt.core2 import apply
from megengine.core.ops.builtin import GetVarShape
from megengine.functional.nn import warp_affine, warp_perspective
from megengine.jit import trace


def fit(net, loss_of, steps, lr, rule=optim.Adam, **options):
    """Losses of some steps."""
    gm = GradManager().attach(net.parameters())
    opt = rule(net.parameters(), lr=lr, **options)
    losses = []
    for i in range(steps):
        with gm:
            loss = loss_of(i)
            gm.backward(loss)
        opt.step().clear_grad()
        losses.append(float(loss.numpy()))
    return losses


class UNet(M.Module):
    def __init__(self, classes=3):
        super().__init__()
        block = lambda i, o: M.Sequential(M.Conv2d(i, o, 3, 1, 1), M.GroupNorm(2, o), M.LeakyReLU(0.1))  # noqa: E731
        self.down = [block(1, 4), block(4, 8)]
        self.pool = M.MaxPool2d(2, 2)
        self.up = M.ConvTranspose2d(8, 4, 2, stride=2)
        self.last = M.Sequential(block(8, 4), M.Conv2d(4, classes, 1))

    def forward(self, x):
        a = self.down[0](x)
        b = self.down[1](self.pool(a))
        return self.last(F.concat([a, self.up(b)], axis=1))


def segment(steps=8):
    rng = np.random.RandomState(0)
    image = rng.randn(2, 1, 8, 8).astype("float32")
    label = (image[:, 0] > 0).astype("int32") + (image[:, 0] > 1).astype("int32")
    net = UNet()
    draw(net, 1)

    def loss_of(_):
        logits = net(tensor(image))
        ce = F.nn.cross_entropy(logits, tensor(label), axis=1)
        p = F.softmax(logits, axis=1)
        t = F.one_hot(tensor(label), 3).transpose(0, 3, 1, 2).astype("float32")
        dice = 1 - (2 * (p * t).sum(axis=(0, 2, 3)) + 1) / ((p + t).sum(axis=(0, 2, 3)) + 1)
        return ce + dice.mean()

    losses = fit(net, loss_of, steps, 0.02)
    found = F.argmax(net(tensor(image)), axis=1)
    return {"losses": losses, "right": float((found == tensor(label)).astype("float32").mean().item())}


def enlarge(steps=6):
    rng = np.random.RandomState(2)
    large = rng.rand(2, 3, 8, 8).astype("float32")
    small = F.avg_pool2d(tensor(large), 2)
    net = M.Sequential(M.Conv2d(3, 8, 3, padding=1), M.PReLU(8), M.Conv2d(8, 12, 3, padding=1), M.PixelShuffle(2))
    draw(net, 2)

    def loss_of(_):
        y = net(small) + F.vision.interpolate(small, scale_factor=2, mode="bilinear")
        return F.loss.l1_loss(y, tensor(large)) + 0.1 * F.loss.square_loss(y, tensor(large), "mean")

    losses = fit(net, loss_of, steps, 0.01, optim.AdamW, weight_decay=1e-3)
    mse = ((net(small) - tensor(large)) ** 2).mean().item()
    return {"losses": losses, "psnr": -10 * math.log10(mse)}


def flow(steps=6):
    """A shift is found by warping."""
    rng = np.random.RandomState(3)
    a = rng.rand(1, 1, 8, 8).astype("float32")
    b = np.roll(a, 1, axis=3)
    net = M.Module.__new__(M.Sequential)
    M.Sequential.__init__(net, M.Conv2d(2, 4, 3, padding=1), M.ReLU(), M.Conv2d(4, 2, 3, padding=1))
    draw(net, 3)
    ys, xs = np.meshgrid(np.arange(8), np.arange(8), indexing="ij")
    base = tensor(np.stack([xs, ys], -1)[None].astype("float32"))

    def loss_of(_):
        field = net(F.concat([tensor(a), tensor(b)], axis=1)).transpose(0, 2, 3, 1)
        moved = F.vision.remap(tensor(b), base + field, border_mode="replicate")
        return F.sqrt((moved - tensor(a)) ** 2 + 1e-6).mean() + 0.01 * F.abs(field[:, 1:] - field[:, :-1]).mean()

    cost = F.vision.correlation(tensor(a), tensor(b), max_displacement=2, pad_size=2)
    eye = tensor([[[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]]])
    same = warp_perspective(tensor(a), eye, (8, 8))
    turned = warp_affine(tensor(a), tensor([[[0.0, 1, 0], [1, 0, 0]]]), (8, 8), border_mode="replicate")
    return {
        "losses": fit(net, loss_of, steps, 0.05),
        "cost": list(cost.shape),
        "same": float(F.abs(same - tensor(a)).max().item()),
        "turned": float(F.abs(turned - tensor(a.transpose(0, 1, 3, 2))).max().item()),
    }


def rivals(steps=5):
    """Two networks, two optimizers, gradients of a gradient as a penalty left out."""
    rng = np.random.RandomState(4)
    real = rng.randn(8, 1, 8, 8).astype("float32") * 0.1 + 1
    noise = [rng.randn(8, 4).astype("float32") for _ in range(steps)]
    g = M.Sequential(M.Linear(4, 32), M.ReLU(), M.Linear(32, 64), M.Sigmoid())
    d = M.Sequential(M.Conv2d(1, 4, 4, 2, 1), M.LeakyReLU(0.2), M.Conv2d(4, 1, 4))
    draw(g, 5)
    draw(d, 6)
    managers = [GradManager().attach(n.parameters()) for n in (g, d)]
    opts = [optim.Adam(n.parameters(), lr=2e-2, betas=(0.5, 0.999)) for n in (g, d)]
    log = []
    for z in noise:
        with managers[1]:
            fake = g(tensor(z)).reshape(8, 1, 8, 8).detach()
            loss_d = F.relu(1 - d(tensor(real))).mean() + F.relu(1 + d(fake)).mean()
            managers[1].backward(loss_d)
        opts[1].step().clear_grad()
        with managers[0]:
            loss_g = -d(g(tensor(z)).reshape(8, 1, 8, 8)).mean()
            managers[0].backward(loss_g)
        opts[0].step().clear_grad()
        log += [loss_d.item(), loss_g.item()]
    return {"log": log}


class Margin(M.Module):
    """Additive angular margin."""

    def __init__(self, classes, width, margin=0.3, scale=8.0):
        super().__init__()
        self.weight = Parameter(np.zeros((classes, width), "float32"))
        self.margin, self.scale = margin, scale

    def forward(self, x, label):
        cos = F.matmul(F.normalize(x, axis=1), F.normalize(self.weight, axis=1), transpose_b=True)
        hot = F.one_hot(label, cos.shape[1]).astype("bool")
        angle = F.acos(F.clip(cos, -1 + 1e-6, 1 - 1e-6))
        logits = F.where(hot, F.cos(angle + self.margin), cos) * self.scale
        return F.nn.cross_entropy(logits, label)


def faces(steps=6):
    rng = np.random.RandomState(6)
    x, label = rng.randn(12, 5).astype("float32"), (np.arange(12) % 3).astype("int32")
    x[:, 0] += label
    net = M.Sequential(M.Linear(5, 8), M.BatchNorm1d(8), M.PReLU())
    head = Margin(3, 8)
    draw(net, 7)
    draw(head, 8)
    both = M.Sequential()
    both.net, both.head = net, head
    return {"losses": fit(both, lambda _: head(net(tensor(x)), tensor(label)), steps, 0.05, optim.SGD, momentum=0.9)}


def video(steps=4):
    rng = np.random.RandomState(7)
    x = rng.randn(2, 2, 4, 6, 6).astype("float32")
    net = M.Sequential(M.Conv3d(2, 4, 3, padding=1), M.ReLU())
    head = M.Linear(4, 2)
    draw(net, 9)
    draw(head, 10)
    both = M.Sequential()
    both.net, both.head = net, head
    losses = fit(
        both, lambda _: F.nn.cross_entropy(head(net(tensor(x)).mean(axis=(2, 3, 4))), tensor([0, 1])), steps, 0.05
    )
    return {"losses": losses, "up": list(M.ConvTranspose3d(4, 2, 2, stride=2)(net(tensor(x))).shape)}


def speech(steps=4):
    rng = np.random.RandomState(8)
    x = rng.randn(6, 2, 5).astype("float32")
    net = M.LSTM(5, 6, num_layers=1, bidirectional=True)
    head = M.Linear(12, 4)
    draw(net, 11)
    draw(head, 12)
    both = M.Sequential()
    both.net, both.head = net, head

    def loss_of(_):
        out, _state = net(tensor(x))
        p = F.softmax(head(out), axis=2)
        return F.nn.ctc_loss(p, tensor([6, 6]), tensor([1, 2, 3, 1]), tensor([2, 2]), blank=0).mean()

    return {"losses": fit(both, loss_of, steps, 0.02)}


def game(steps=40):
    """A walk to the right, by Q-learning with a slow twin."""
    rng = np.random.RandomState(9)
    q, slow = (M.Sequential(M.Linear(5, 16), M.ReLU(), M.Linear(16, 2)) for _ in range(2))
    draw(q, 13)
    slow.load_state_dict(q.state_dict())
    eye = np.eye(5, dtype="float32")
    state, action = rng.randint(0, 5, 64), rng.randint(0, 2, 64)
    nxt = np.clip(state + 2 * action - 1, 0, 4)
    reward = (nxt == 4).astype("float32")

    def loss_of(i):
        if i % 5 == 0:
            slow.load_state_dict(q.state_dict())
        goal = tensor(reward) + 0.8 * slow(tensor(eye[nxt])).max(axis=1).detach()
        value = F.gather(q(tensor(eye[state])), 1, tensor(action[:, None].astype("int32"))).reshape(-1)
        return F.where(F.abs(value - goal) < 1, 0.5 * (value - goal) ** 2, F.abs(value - goal) - 0.5).mean()

    losses = fit(q, loss_of, steps, 0.02)
    return {"losses": losses[:3] + losses[-1:], "policy": F.argmax(q(tensor(eye)), axis=1).numpy().tolist()}


def odds_and_ends():
    """Small habits: sizes of traced tensors, partial functions, numbers of all kinds."""

    @trace(symbolic=True)
    def f(x):
        n = x.shape[0]
        y = x.reshape(n * 2, -1) * n
        (size,) = apply(GetVarShape(), y)
        return y, size

    for _ in range(3):
        y, size = f(tensor(np.ones((2, 4), "float32")))
    half = functools.partial(F.clip, lower=0.0, upper=0.5)
    a = Tensor([0.25, 2.0])
    a[0] += 1
    a *= 2
    return {
        "y": y.numpy().tolist(),
        "size": size.numpy().tolist(),
        "half": half(a).numpy().tolist(),
        "kinds": [str(np.dtype(v.dtype)) for v in (a > 1, a.astype("int32") + 1.5, a.astype("int32") * 2)],
        "sum": float(sum(v for v in a)),
        "seed": float(np.ptp([mge.random.RNG(seed=3).uniform(size=(1,)).item() for _ in range(2)])),
    }


ALL = (segment, enlarge, flow, rivals, faces, video, speech, game, odds_and_ends)
