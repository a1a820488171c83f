"""Optimizers and learning-rate schedules."""

import typing as _typing
from typing import Any as _Any

from ..core._habits import no_attribute as _no_attribute
from .adadelta import Adadelta
from .adagrad import Adagrad
from .adam import Adam
from .adamw import AdamW
from .clip_grad import clip_grad_norm, clip_grad_value
from .lamb import LAMB, LAMBFp16
from .lr_scheduler import LRScheduler
from .multi_step_lr import MultiStepLR
from .optimizer import Optimizer
from .sgd import SGD

__all__ = [
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "LAMB",
    "LAMBFp16",
    "LRScheduler",
    "MultiStepLR",
    "Optimizer",
    "SGD",
    "clip_grad_norm",
    "clip_grad_value",
]

if not _typing.TYPE_CHECKING:  # type checkers shall say that a name is not there

    def __getattr__(name: str) -> _Any:
        raise _no_attribute(__name__, name)
