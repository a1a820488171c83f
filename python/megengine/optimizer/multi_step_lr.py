"""Learning rates that fall at given epochs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from .lr_scheduler import LRScheduler
from .optimizer import Optimizer

__all__ = ["MultiStepLR"]


class MultiStepLR(LRScheduler):
    """Multiplies the learning rate by ``gamma`` at each milestone.

    >>> from megengine.optimizer import SGD, MultiStepLR
    >>> opt = SGD(mge.Parameter([1.0]), lr=1.0)
    >>> schedule = MultiStepLR(opt, [1, 3], gamma=0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(opt.param_groups[0]["lr"])
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, current_epoch: int = -1
    ) -> None:
        if isinstance(milestones, int):
            raise TypeError(f"MultiStepLR: milestones must be a list of increasing integers; got {milestones}.")
        self.milestones = list(milestones)
        if self.milestones != sorted(self.milestones):
            raise ValueError(f"MultiStepLR: milestones must be a list of increasing integers; got {self.milestones}")
        self.gamma = gamma
        super().__init__(optimizer, current_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Milestones, gamma and the current epoch."""
        return {"milestones": self.milestones, "gamma": self.gamma, "current_epoch": self.current_epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from ``state_dict()`` of an earlier schedule."""
        for key in ("milestones", "gamma", "current_epoch"):
            if key not in state_dict:
                raise KeyError(f"key '{key}' is not specified in state_dict when loading state dict")
        self.milestones = state_dict["milestones"]
        self.gamma = state_dict["gamma"]
        self.current_epoch = state_dict["current_epoch"]

    def get_lr(self) -> list[float]:
        """base * gamma ** (number of milestones reached)."""
        factor = self.gamma ** bisect_right(self.milestones, self.current_epoch)
        return [base * factor for base in self.base_lrs]
