"""Sequences and samples: a decoder that is trained and asked for text, a layer divided by its largest singular value,
distributions over actions, a field that is rendered along rays, a graph that is made by hand."""

import copy
import math

import numpy as np
from programs_classify import draw

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Parameter, Tensor
from megengine.autodiff import GradManager
from megengine.core._imperative_rt.core2 import apply, pop_scope, push_scope
from megengine.core.ops import builtin
from megengine.core.tensor import megbrain_graph as G
from megengine.core.tensor.utils import subgraph_fn
from megengine.functional.nn import indexing_one_hot
from megengine.jit import trace
from megengine.optimizer import Adam, LRScheduler


class Attention(M.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = M.Linear(width, 3 * width, bias=False)
        self.out = M.Linear(width, width)
        self.register = None

    def forward(self, x, mask):
        n, t, c = x.shape
        q, k, v = F.split(self.qkv(x), 3, axis=2)
        q, k, v = (y.reshape(n, t, self.heads, c // self.heads).transpose(0, 2, 1, 3) for y in (q, k, v))
        score = F.matmul(q, k.transpose(0, 1, 3, 2)) / math.sqrt(c // self.heads)
        score = F.where(F.broadcast_to(mask, score.shape), score, F.full_like(score, -1e9))
        y = F.matmul(F.softmax(score, axis=-1), v)
        return self.out(y.transpose(0, 2, 1, 3).reshape(n, t, c))


class Decoder(M.Module):
    def __init__(self, words=11, width=16, length=8):
        super().__init__()
        self.embed = M.Embedding(words, width)
        self.place = Parameter(np.zeros((1, length, width), "float32"))
        self.parts = [Attention(width, 2), Attention(width, 2)]
        self.norms = [M.LayerNorm(width), M.LayerNorm(width)]
        self.head = M.Linear(width, words)
        self.mask = Tensor(np.tril(np.ones((1, 1, length, length), bool)))

    def forward(self, tokens):
        t = int(tokens.shape[1])
        x = self.embed(tokens) + self.place[:, :t]
        for part, norm in zip(self.parts, self.norms):
            push_scope("attention")
            x = x + part(norm(x), self.mask[:, :, :t, :t])
            pop_scope("attention")
        return self.head(x)


class Warmup(LRScheduler):
    def get_lr(self):
        return [base * min(1.0, (self.current_epoch + 1) / 5) for base in self.base_lrs]


def main(steps=20):
    mge.random.seed(11)
    np.random.seed(11)
    net = Decoder()
    draw(net, 11)
    gm = GradManager().attach(net.parameters())
    opt = Adam(net.parameters(), lr=0.02)
    schedule = Warmup(opt)
    words = (np.arange(9)[None] * np.array([[1], [2], [3], [4]]) % 11).astype("int32")  # each counts in its own step
    x, y = mge.tensor(words[:, :-1]), mge.tensor(words[:, 1:])
    losses = []
    for _ in range(steps):
        with gm:
            logp = F.logsoftmax(net(x), axis=-1)
            loss = -indexing_one_hot(logp.reshape(-1, 11), y.flatten(), axis=1).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        schedule.step()
        losses.append(loss.item())
    net.eval()
    said = words[:, :3].copy()
    for _ in range(4):
        nxt = F.argmax(net(mge.tensor(said))[:, -1], axis=1).numpy()
        said = np.concatenate([said, nxt[:, None].astype("int32")], axis=1)
    return {"losses": losses, "right": float((said == words[:, :7]).mean())}


class SpectralNorm:
    """A hook that divides a weight by its largest singular value."""

    def __init__(self, name):
        self.name = name

    def __call__(self, module, inputs):
        w = getattr(module, self.name + "_orig")
        u = getattr(module, self.name + "_u")
        v = F.normalize(F.matmul(w, u, transpose_a=True), axis=0)
        u.set_value(F.normalize(F.matmul(w, v), axis=0))
        setattr(module, self.name, w / F.dot(u.detach(), F.matmul(w, v.detach())))


def spectral(steps=30):
    mge.random.seed(1)
    layer = M.Linear(6, 5)
    w = copy.deepcopy(layer.weight)
    del layer.weight
    layer.weight_orig = w
    layer.weight_u = mge.random.normal(0.0, 1.0, (5,)).detach()
    layer.register_forward_pre_hook(SpectralNorm("weight"))
    for _ in range(steps):
        layer(F.ones((1, 6)))
    return {"sigma": float(np.linalg.svd(layer.weight.numpy(), compute_uv=False)[0])}


class Categorical:
    def __init__(self, logits):
        self.logits = logits - F.logsumexp(logits, axis=-1, keepdims=True)

    def sample(self):
        noise = mge.random.uniform(1e-6, 1 - 1e-6, self.logits.shape)
        return F.argmax(self.logits - F.log(-F.log(noise)), axis=-1)

    def log_prob(self, action):
        return F.gather(self.logits, 1, F.expand_dims(action, 1).astype("int32")).flatten()

    def entropy(self):
        return -(F.exp(self.logits) * self.logits).sum(axis=-1)


def policy(steps=60):
    """A bandit, by the policy gradient."""
    mge.random.seed(0)
    logits = Parameter(np.zeros((1, 4), "float32"))
    reward = np.array([0.0, 0.2, 1.0, 0.1], "float32")
    gm, opt = GradManager().attach(logits), Adam([logits], lr=0.1)
    for _ in range(steps):
        with gm:
            d = Categorical(F.broadcast_to(logits, (32, 4)))
            action = d.sample()
            gain = mge.tensor(reward[action.numpy()])
            loss = -(d.log_prob(action) * (gain - gain.mean())).mean() - 0.01 * d.entropy().mean()
            gm.backward(loss)
        opt.step().clear_grad()
    return {"best": int(F.argmax(logits, axis=1).item()), "p": float(F.softmax(logits, axis=1)[0, 2].item())}


def rays():
    """Volume rendering: cumulative products by sums of logarithms, samples by a search in sorted edges."""
    rng = np.random.RandomState(0)
    density = mge.tensor(rng.rand(4, 8).astype("float32"))
    colour = mge.tensor(rng.rand(4, 8, 3).astype("float32"))
    alpha = 1 - F.exp(-density * 0.5)
    through = F.exp(F.cumsum(F.concat([F.zeros((4, 1)), F.log(1 - alpha + 1e-10)[:, :-1]], axis=1), axis=1))
    weight = alpha * through
    pixel = (F.expand_dims(weight, 2) * colour).sum(1)
    edges = F.cumsum(weight / weight.sum(1, keepdims=True), axis=1)
    u = F.broadcast_to(F.linspace(0.1, 0.9, 5), (4, 5))
    index = (F.expand_dims(u, 2) > F.expand_dims(edges, 1)).astype("int32").sum(2)
    near = F.gather(edges, 1, F.minimum(index, 7).astype("int32"))
    return {"pixel": pixel.numpy().tolist(), "near": near.numpy().tolist()}


def by_hand():
    """An op of ops, a graph of nodes, and a trace of both sides agree."""

    @subgraph_fn("gate", dtype=np.dtype("float32"), device=mge.tensor(0.0).device, nr_inputs=2)
    def gate(inputs, f, c):
        x, y = inputs
        return (f("*", x, f("/", c(1.0), f("+", c(1.0), f("exp", f("-", y))))),), (True,)

    x = mge.tensor(np.linspace(-2, 2, 6).astype("float32"))
    eager = gate(x, x)[0].numpy()
    traced = trace(lambda v: gate(v, v)[0], symbolic=True)
    for _ in range(3):
        again = traced(x).numpy()
    (silu,) = apply(builtin.Elemwise("silu"), x)
    graph = G.Graph()
    inp = graph.make_h2d(dtype=np.float32, device=str(x.device), shape=(6,), name="x")
    (y,) = G.apply_normal_varnode(builtin.Elemwise("silu"), inp)
    file, info = G.dump_graph([y])
    return {
        "eager": eager.tolist(),
        "same": float(np.abs(eager - again).max()),
        "silu": float(np.abs(eager - silu.numpy()).max()),
        "nodes": list(info.inputs),
    }
