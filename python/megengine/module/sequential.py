"""Modules one after the other."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from .module import Module


def _check_module(key: str, module: Any) -> None:
    if isinstance(module, type):
        raise TypeError(
            f"Sequential: {key} must be a Module; got the class {module.__name__}. {module.__name__}() makes one."
        )
    if not callable(module):
        way = " Unpack it: Sequential(*layers)." if isinstance(module, (list, tuple)) else ""
        raise TypeError(f"Sequential: {key} must be a Module; got a {type(module).__name__}.{way}")


class Sequential(Module):
    """Runs modules one after the other.

    Args:
        args: modules, or one OrderedDict of them.

    >>> net = M.Sequential(M.Linear(4, 3), M.ReLU())
    >>> net(F.ones((2, 4))).shape
    (2, 3)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer_keys: list[str] = []
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for key, module in args[0].items():
                _check_module(key, module)
                setattr(self, key, module)
                self.layer_keys.append(key)
        else:
            for i, module in enumerate(args):
                _check_module(str(i), module)
                setattr(self, str(i), module)
                self.layer_keys.append(str(i))

    @property
    def layer_values(self) -> list[Module]:
        """The modules in running order."""
        return [getattr(self, key) for key in self.layer_keys]

    def __getitem__(self, idx: int | slice) -> Any:
        if isinstance(idx, slice):
            return type(self)(OrderedDict((k, getattr(self, k)) for k in self.layer_keys[idx]))
        return getattr(self, self.layer_keys[idx])

    def __setitem__(self, idx: int, module: Module) -> None:
        setattr(self, self.layer_keys[idx], module)

    def __delitem__(self, idx: int | slice) -> None:
        gone = self.layer_keys[idx] if isinstance(idx, slice) else [self.layer_keys[idx]]
        for key in gone:
            delattr(self, key)
        del self.layer_keys[idx]

    def __len__(self) -> int:
        return len(self.layer_keys)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.layer_values)

    def forward(self, inp: Any) -> Any:
        for module in self.layer_values:
            inp = module(inp)
        return inp
