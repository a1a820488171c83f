"""A small transformer language model on synthetic text: Adam with warm-up, dropout, clipped gradients.

    python examples/transformer_lm.py [--steps 400] [--device gpu0] [--save run.pkl] [--resume run.pkl]

The text is a chain in which each word is followed by one of four others, so the best loss there can be is known.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import training
from datasets import LENGTH, VOCABULARY, synthetic_text

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.data.dataset import ArrayDataset


class Attention(M.Module):
    """Causal self-attention: every position looks at itself and at those before it."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = M.Linear(width, 3 * width)
        self.out = M.Linear(width, width)
        self.dropout = M.Dropout(dropout)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        n, length, width = x.shape
        # (n, length, 3 * width) -> 3 x (n, heads, length, width / heads)
        qkv = self.qkv(x).reshape(n, length, 3, self.heads, width // self.heads).transpose(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        later = mge.Tensor(np.triu(np.full((length, length), -1e9, "float32"), k=1))
        scores = F.matmul(q, k, transpose_b=True) / math.sqrt(width // self.heads) + later
        y = F.matmul(self.dropout(F.softmax(scores, axis=-1)), v)
        return self.out(y.transpose(0, 2, 1, 3).reshape(n, length, width))


class Block(M.Module):
    """Attention and a two-layer network, each normalised before and added to what came in."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = M.LayerNorm(width), M.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.fc1, self.fc2 = M.Linear(width, 4 * width), M.Linear(4 * width, width)
        self.dropout = M.Dropout(dropout)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.fc2(F.gelu(self.fc1(self.norm2(x)))))


class TransformerLM(M.Module):
    """Words in, logits of the next word out: (n, length) -> (n, length, vocabulary)."""

    def __init__(self, width: int = 64, heads: int = 4, layers: int = 2, dropout: float = 0.1) -> None:
        super().__init__()
        self.words = M.Embedding(VOCABULARY, width)
        self.positions = M.Embedding(LENGTH, width)
        self.blocks = M.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm = M.LayerNorm(width)
        self.head = M.Linear(width, VOCABULARY)

    def forward(self, words: mge.Tensor) -> mge.Tensor:
        x = self.words(words) + self.positions(F.arange(words.shape[1]).astype("int32"))
        return self.head(self.norm(self.blocks(x)))


class WarmUp(optim.LRScheduler):
    """The learning rate rises for ``steps`` steps and then stays."""

    def __init__(self, optimizer: optim.Optimizer, steps: int) -> None:
        self.steps = steps
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        return [base * min(1.0, (self.current_epoch + 1) / self.steps) for base in self.base_lrs]

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "current_epoch": self.current_epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.steps, self.current_epoch = state_dict["steps"], state_dict["current_epoch"]


def loss_of(net: M.Module, words: mge.Tensor, following: mge.Tensor) -> mge.Tensor:
    return F.nn.cross_entropy(net(words).reshape(-1, VOCABULARY), following.reshape(-1))


def main(argv: list[str] | None = None) -> int:
    options = training.parse(training.parser(__doc__, steps=400, batch_size=32, lr=2e-3, out="transformer_out"), argv)
    mge.random.seed(0)
    net = TransformerLM()
    gm = GradManager().attach(net.parameters())
    opt = optim.Adam(net.parameters(), lr=options.lr)
    schedule = WarmUp(opt, steps=20)

    def step(words: mge.Tensor, following: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = loss_of(net, words, following)
            gm.backward(loss)
        optim.clip_grad_norm(net.parameters(), max_norm=1.0)
        opt.step().clear_grad()
        schedule.step()
        return loss

    words, following, entropy = synthetic_text(2048)
    net.train()
    losses = training.run(options, step, ArrayDataset(words, following), net=net, optimizer=opt, schedule=schedule)
    print(f"loss {losses[-1]:.4f} (the text itself has {entropy:.4f}), picture in {options.out}/loss.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
