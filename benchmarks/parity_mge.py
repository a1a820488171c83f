"""Our side of the parity runs: the networks of the examples, trained on the shared data from the shared weights."""

from __future__ import annotations

import numpy as np
from parity_cases import OPTIMIZERS, STEPS, batches, weights  # puts examples/ on the path

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager


def network(case: str) -> M.Module:
    if case == "lenet":
        from digits_lenet import LeNet

        return LeNet()
    if case == "resnet18":
        from resnet18 import ResNet18

        return ResNet18()
    from transformer_lm import TransformerLM

    return TransformerLM(dropout=0.0)  # the random numbers of dropout are not those of others


def losses(case: str, steps: int = STEPS) -> list[float]:
    """The loss of each step, and last that of the trained network in evaluation mode (its statistics count there)."""
    net = network(case)
    values = weights({name: p.shape for name, p in net.named_parameters()})
    for name, p in net.named_parameters():
        p._reset(mge.Parameter(values[name]))
    gm = GradManager().attach(net.parameters())
    kind, options = OPTIMIZERS[case]
    opt = getattr(optim, kind)(net.parameters(), **options)

    def loss_of(x: np.ndarray, y: np.ndarray) -> mge.Tensor:
        logits = net(mge.Tensor(x))
        return F.nn.cross_entropy(logits.reshape(-1, logits.shape[-1]), mge.Tensor(y.reshape(-1)))

    net.train()
    found = []
    for x, y in batches(case, steps):
        with gm:
            loss = loss_of(x, y)
            gm.backward(loss)
        opt.step().clear_grad()
        found.append(float(loss))
    net.eval()
    return [*found, float(loss_of(x, y))]
