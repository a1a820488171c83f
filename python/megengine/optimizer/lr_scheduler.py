"""Learning rates that change over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core._habits import no_attribute
from .optimizer import Optimizer

__all__ = ["LRScheduler"]


class LRScheduler:
    """The base of schedules: ``step`` once per epoch writes ``get_lr()`` into the groups.

    Args:
        optimizer: whose learning rates to set.
        current_epoch: -1 to start; another number goes on where an earlier schedule stopped.
    """

    def __init__(self, optimizer: Optimizer, current_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(self).__name__}: needs an Optimizer; got {type(optimizer).__name__}.")
        self.optimizer = optimizer
        self.current_epoch = current_epoch
        if current_epoch == -1:
            for group in optimizer.param_groups:
                group.setdefault("initial_lr", group["lr"])
        else:
            for i, group in enumerate(optimizer.param_groups):
                if "initial_lr" not in group:
                    raise KeyError(
                        f"param 'initial_lr' is not specified in param_groups[{i}] when resuming an optimizer"
                    )
        self.step()

    @property
    def base_lrs(self) -> list[float]:
        """The learning rate of each group before any schedule; ``Optimizer.load_state_dict`` restores them."""
        return [group["initial_lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on later."""
        raise NotImplementedError

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from ``state_dict()`` of an earlier schedule."""
        raise NotImplementedError

    def get_lr(self) -> list[float]:
        """The learning rate of each group at ``current_epoch``."""
        raise NotImplementedError

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, or to the one given."""
        self.current_epoch = self.current_epoch + 1 if epoch is None else epoch
        for group, lr in zip(self.optimizer.param_groups, self.get_lr()):
            group["lr"] = lr


if not TYPE_CHECKING:  # type checkers shall say that a name is not there

    def __getattr__(name: str) -> Any:
        raise no_attribute(__name__, name)
