"""Random number generators. The state is a small tensor that each draw replaces, so a trace sees it as a variable."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..core import _core
from ..core._core import CompNode, ops
from ..core.tensor.utils import make_shape_tuple
from ..tensor import Tensor, as_device

__all__ = [
    "RNG",
    "beta",
    "exponential",
    "gamma",
    "multinomial",
    "normal",
    "permutation",
    "poisson",
    "seed",
    "shuffle",
    "uniform",
]

Size = int | Iterable[int] | Tensor | None


def _make_state(seed: int, device: Any = None) -> Tensor:
    """int32[4]: seed low, seed high, counter low, counter high."""
    words = np.array([seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF, 0, 0], dtype=np.uint32)
    return Tensor(words.view(np.int32), device=device, no_cache=True)


def _shape(size: Size) -> tuple[int, ...]:
    return (1,) if size is None else make_shape_tuple(size)


def _not_yet(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"random.{name}: arrives with the random-number ops; uniform, normal and exponential exist."
    )


class RNG:
    """A generator with its own seed, or, without a seed, the global one.

    Args:
        seed: equal seeds give equal streams; None uses the generator that ``random.seed`` sets.
        device: where results are made; the default device when None.

    >>> a, b = mge.random.RNG(seed=3), mge.random.RNG(seed=3)
    >>> np.array_equal(a.uniform(size=(4,)).numpy(), b.uniform(size=(4,)).numpy())
    True
    """

    def __init__(self, seed: int | None = None, device: str | None = None) -> None:
        self._device = None if device is None else as_device(device)
        self._seed = seed
        self._state: Tensor | None = None if seed is None else _make_state(seed, self._device)

    def _cell(self) -> Tensor:
        if self._state is not None:
            return self._state
        return _global_state() if self._device is None else _global_state(str(self._device))

    def _check(self, *params: Any) -> None:
        for p in params:
            if isinstance(p, Tensor) and self._device is not None:
                assert p.device == self._device, (
                    f"RNG: the parameter is on {p.device}, the generator on {self._device}."
                )

    def uniform(self, low: float = 0, high: float = 1, size: Size = None) -> Tensor:
        """Numbers spread evenly over (low, high].

        >>> x = mge.random.uniform(2, 3, size=(100,))
        >>> x.shape, bool((x > 2).numpy().all())
        ((100,), True)
        """
        assert low < high, f"uniform: low must be below high; got {low} and {high}."
        cell = self._cell()
        y, new = ops.rng_uniform(cell, shape=_shape(size), lo=float(low), hi=float(high))
        cell._reset(new)
        return y

    def normal(self, mean: float = 0, std: float = 1, size: Size = None) -> Tensor:
        """Numbers from the normal distribution.

        >>> mge.random.normal(0, 1, size=(2, 3)).shape
        (2, 3)
        """
        cell = self._cell()
        y, new = ops.rng_normal(cell, shape=_shape(size), mean=float(mean), std=float(std))
        cell._reset(new)
        return y

    def exponential(self, rate: float | Tensor = 1.0, size: Size = None) -> Tensor:
        """Numbers from the exponential distribution with mean ``1 / rate``.

        >>> mge.random.exponential(2.0, size=(5,)).shape
        (5,)
        """
        self._check(rate)
        if isinstance(rate, Tensor):
            shape = (() if size is None else make_shape_tuple(size)) + rate.shape
        else:
            assert rate > 0, f"exponential: the rate must be above 0; got {rate}."
            shape = _shape(size)
        return -ops.log(self.uniform(0, 1, shape)) / rate

    def gamma(self, shape: float | Tensor, scale: float | Tensor = 1, size: Size = None) -> Tensor:
        """Numbers from the gamma distribution."""
        raise _not_yet("gamma")

    def beta(self, alpha: float | Tensor, beta: float | Tensor, size: Size = None) -> Tensor:
        """Numbers from the beta distribution."""
        raise _not_yet("beta")

    def poisson(self, lam: float | Tensor, size: Size = None) -> Tensor:
        """Counts from the Poisson distribution."""
        raise _not_yet("poisson")

    def multinomial(self, input: Tensor, num_samples: int, replacement: bool = False) -> Tensor:
        """Class indices drawn with given weights."""
        raise _not_yet("multinomial")

    def permutation(self, n: int | Tensor, *, dtype: str = "int32") -> Tensor:
        """A random order of ``range(n)``, or a tensor shuffled along its first axis.

        The order is drawn on the host, so a trace cannot record it yet.

        >>> sorted(mge.random.permutation(4).tolist())
        [0, 1, 2, 3]
        """
        if isinstance(n, Tensor):
            x = n.reshape(1) if n.ndim == 0 else n
            return ops.take(x, Tensor(self._order(x.shape[0]), device=x.device), axis=0)
        assert int(n) >= 0, f"permutation: n must be at least 0; got {n}."
        assert dtype in ("int32", "int16", "float32"), f"permutation: dtype int32, int16 or float32; got {dtype}."
        return Tensor(self._order(int(n)), dtype, self._device)

    def shuffle(self, inp: Tensor) -> None:
        """Shuffle a tensor along its first axis, in place.

        >>> x = mge.tensor([1, 2, 3])
        >>> mge.random.shuffle(x)
        >>> sorted(x.tolist())
        [1, 2, 3]
        """
        assert inp.size > 0, "shuffle: the tensor has no elements."
        inp._reset(self.permutation(inp))

    def _order(self, n: int) -> Any:
        return np.argsort(self.uniform(0, 1, (n,)).numpy(), kind="stable").astype(np.int32)


_states: dict[str, Tensor] = {}
_global_seed = int(time.time())


def _global_state(device: str = "") -> Tensor:
    """The global state on a device; made when first used, since that starts the engine."""
    key = _core.get_default_device()
    if device and CompNode(device) != CompNode(key):
        key = device
    cell = _states.get(key)
    if cell is None:
        token = _core.pause_trace()  # state, not a constant of the trace that happens to be recorded
        try:
            cell = _states[key] = _make_state(_global_seed, key)
        finally:
            _core.resume_trace(token)
    return cell


def seed(seed: int) -> None:
    """Start the global generators of all devices anew.

    >>> mge.random.seed(7)
    >>> x = mge.random.normal(size=(3,)).numpy()
    >>> mge.random.seed(7)
    >>> np.array_equal(mge.random.normal(size=(3,)).numpy(), x)
    True
    """
    global _global_seed
    _global_seed = int(seed)
    for key, cell in _states.items():
        cell._reset(_make_state(_global_seed, key))


_default = RNG()
uniform = _default.uniform
normal = _default.normal
gamma = _default.gamma
beta = _default.beta
poisson = _default.poisson
exponential = _default.exponential
multinomial = _default.multinomial
permutation = _default.permutation
shuffle = _default.shuffle
