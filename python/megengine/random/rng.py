"""Random number generators. The state is a small tensor that each draw replaces, so a trace sees it as a variable."""

from __future__ import annotations

import operator
import time
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import _size
from ..core import _core
from ..core._core import CompNode, ops
from ..core.tensor.utils import ArgumentError, make_shape_tuple
from ..tensor import Tensor, as_device

__all__ = [
    "RNG",
    "beta",
    "exponential",
    "gamma",
    "get_rng_state",
    "multinomial",
    "normal",
    "permutation",
    "poisson",
    "seed",
    "set_rng_state",
    "shuffle",
    "uniform",
]

Size = int | Iterable[int] | Tensor | None


def _checked_seed(seed: Any, who: str) -> int:
    try:
        number = operator.index(seed)
    except TypeError:
        raise TypeError(f"{who}: a seed is an int; got {seed!r}.") from None
    if not 0 <= number < 1 << 64:
        raise ValueError(f"{who}: a seed is an integer from 0 up to 2**64 - 1; got {number}.")
    return number


def _make_state(seed: int, device: Any = None) -> Tensor:
    """int32[4]: seed low, seed high, counter low, counter high."""
    words = np.array([seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF, 0, 0], dtype=np.uint32)
    return Tensor(words.view(np.int32), device=device, no_cache=True)


def _state_of(words: Any, device: Any, who: str) -> Tensor:
    """A state from words that were saved."""
    array = np.asarray(words)
    if array.shape != (4,) or array.dtype.kind not in "iu":
        raise ValueError(f"{who}: a state is 4 integers; got {array.dtype} of shape {array.shape}.")
    return Tensor(array.astype(np.uint32).view(np.int32), device=device, no_cache=True)


def _words(cell: Tensor) -> np.ndarray[Any, Any]:
    return np.array(cell.numpy().view(np.uint32))


def _together(tensors: list[Tensor]) -> Any:
    """The shape that tensors have when they are broadcast."""
    shapes = [p.shape for p in tensors]
    if all(type(s) is tuple for s in shapes):
        return np.broadcast_shapes(*shapes)
    total = tensors[0]
    for p in tensors[1:]:
        total = total + p  # only its sizes are used
    return total.shape


def _shape(size: Size) -> tuple[int, ...]:
    return (1,) if size is None else make_shape_tuple(size)


def _check_numbers(who: str, **numbers: Any) -> None:
    for name, value in numbers.items():
        if isinstance(value, (tuple, list)):
            raise TypeError(f"{who}: {name} must be a number; got {value!r}. size= is the shape.")


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
        self._state: Tensor | None = None if seed is None else _make_state(_checked_seed(seed, "RNG"), self._device)
        if seed is not None:
            _seeded.add(self)

    def _cell(self, like: Any = None) -> Tensor:
        """The state to draw from: the own one, or the global one of the device of the generator or of ``like``."""
        if self._state is not None:
            return self._state
        device = self._device
        if device is None and isinstance(like, Tensor):
            device = like.device
        return _global_state() if device is None else _global_state(str(device))

    def get_state(self) -> np.ndarray[Any, Any]:
        """Where the stream stands, to be saved: four 32-bit words.

        >>> g = mge.random.RNG(seed=3)
        >>> state, x = g.get_state(), g.uniform(size=(2,)).numpy()
        >>> g.set_state(state)
        >>> np.array_equal(g.uniform(size=(2,)).numpy(), x)
        True
        """
        return _words(self._cell())

    def set_state(self, state: Any) -> None:
        """Go on from where ``get_state`` was called."""
        cell = self._cell()
        cell._reset(_state_of(state, cell.device, "RNG.set_state"))

    def _check(self, *params: Any) -> None:
        own = self._device if self._state is None else self._state.device
        for p in params:
            if isinstance(p, Tensor) and own is not None:  # xpu0 and xpux are names of one stream
                assert p.device.physical_name == own.physical_name, (
                    f"RNG: the parameter is on {p.device}, the generator on {own}."
                )

    def uniform(self, low: float = 0, high: float = 1, size: Size = None) -> Tensor:
        """Numbers spread evenly over (low, high].

        >>> x = mge.random.uniform(2, 3, size=(100,))
        >>> x.shape, bool((x > 2).numpy().all())
        ((100,), True)
        """
        _check_numbers("uniform", low=low, high=high)
        if not low < high:
            raise ArgumentError(f"uniform: low must be below high; got {low} and {high}.")
        return self._draw(ops.rng_uniform, shape=_shape(size), lo=float(low), hi=float(high))

    def normal(self, mean: float = 0, std: float = 1, size: Size = None) -> Tensor:
        """Numbers from the normal distribution.

        >>> mge.random.normal(0, 1, size=(2, 3)).shape
        (2, 3)
        """
        _check_numbers("normal", mean=mean, std=std)
        return self._draw(ops.rng_normal, shape=_shape(size), mean=float(mean), std=float(std))

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
        return -ops.log(self._draw(ops.rng_uniform, like=rate, shape=shape, lo=0.0, hi=1.0)) / rate

    def _parameters(self, who: str, least: float, size: Size, *params: float | Tensor) -> list[Tensor]:
        """The parameters as float32 tensors of the shape of the result: ``size`` before their broadcast shape."""
        self._check(*params)
        for p in params:
            assert isinstance(p, Tensor) or p > least or (p == least and who == "poisson"), (
                f"{who}: parameters must be {'at least' if who == 'poisson' else 'above'} {least}; got {p}."
            )
        tensors = [p for p in params if isinstance(p, Tensor)]
        if tensors:
            inner = _together(tensors)
            shape = (() if size is None else make_shape_tuple(size)) + inner
        else:
            shape = _shape(size)
        device = self._device or (tensors[0].device if tensors else None)
        return [
            ops.broadcast_to(
                p.astype("float32") if isinstance(p, Tensor) else Tensor(p, "float32", device), shape=shape
            )
            for p in params
        ]

    def _draw(self, op: Any, *inputs: Tensor, like: Any = None, **attrs: Any) -> Tensor:
        cell = self._cell(inputs[0] if inputs else like)
        y, new = op(*inputs, cell, **attrs)
        cell._reset(new)
        return y  # type: ignore[no-any-return]

    def gamma(self, shape: float | Tensor, scale: float | Tensor = 1, size: Size = None) -> Tensor:
        """Numbers from the gamma distribution with mean ``shape * scale``.

        Args:
            shape: above 0; a tensor draws for each of its elements.
            scale: above 0; broadcast with ``shape``.
            size: goes before the shape of the parameters.

        >>> mge.random.gamma(2.0, size=(3,)).shape
        (3,)
        >>> mge.random.gamma(mge.tensor([1.0, 2.0]), size=(3,)).shape
        (3, 2)
        """
        return self._draw(ops.rng_gamma, *self._parameters("gamma", 0, size, shape, scale))

    def beta(self, alpha: float | Tensor, beta: float | Tensor, size: Size = None) -> Tensor:
        """Numbers from the beta distribution with mean ``alpha / (alpha + beta)``.

        >>> x = mge.random.beta(2.0, 3.0, size=(100,))
        >>> bool(((x >= 0).numpy() & (x <= 1).numpy()).all())
        True
        """
        a, b = self._parameters("beta", 0, size, alpha, beta)
        one = ops.fill_like(a, value=1.0)
        x, y = self._draw(ops.rng_gamma, a, one), self._draw(ops.rng_gamma, b, one)
        return x / (x + y)

    def poisson(self, lam: float | Tensor, size: Size = None) -> Tensor:
        """Counts, float32, from the Poisson distribution with mean ``lam``.

        >>> mge.random.poisson(4.0, size=(2, 3)).shape
        (2, 3)
        """
        return self._draw(ops.rng_poisson, *self._parameters("poisson", 0, size, lam))

    def multinomial(self, input: Tensor, num_samples: int, replacement: bool = False) -> Tensor:
        """Class numbers, int32, drawn with given weights.

        Args:
            input: weights (C,) or (N, C), float32 or float16; they need not sum to 1.
            num_samples: how many to draw for each row.
            replacement: whether a class may be drawn again.

        >>> mge.random.multinomial(mge.tensor([0.0, 0.0, 1.0]), 2, replacement=True).tolist()
        [2, 2]
        """
        self._check(input)
        assert input.ndim in (1, 2), f"multinomial: weights need 1 or 2 dimensions; got {input.shape}."
        assert input.dtype.kind == "f", f"multinomial: weights must be floating-point; got {input.dtype}."
        classes, num_samples = input.shape[-1], operator.index(num_samples)
        assert classes > 0 and num_samples > 0, (
            f"multinomial: needs at least one class and one sample; got {input.shape} and {num_samples}."
        )
        assert replacement or num_samples <= classes, (
            f"multinomial: {num_samples} samples of {classes} classes need replacement=True."
        )
        rows = input.astype("float32").reshape(-1, classes)
        cell = self._cell(input)
        y = ops.rng_multinomial(rows, cell, num_samples=num_samples, replacement=bool(replacement))
        # The state moves on by itself: bad weights fail the draw, not every draw after it.
        used = rows.shape[0] * (num_samples if replacement else classes)
        cell._reset(ops.rng_skip(cell, n=4 * used))
        return y if input.ndim == 2 else y.reshape(-1)

    def permutation(self, n: int | Tensor, *, dtype: str = "int32") -> Tensor:
        """A random order of ``range(n)``, or a tensor shuffled along its first axis.

        >>> sorted(mge.random.permutation(4).tolist())
        [0, 1, 2, 3]
        """
        if isinstance(n, Tensor) and not isinstance(n, _size.Size):
            self._check(n)
            x = n.reshape(1) if n.ndim == 0 else n
            return ops.take(x, self._draw(ops.rng_permutation, like=x, n=x.shape[0]), axis=0)
        assert isinstance(n, (int, np.integer, Tensor)) and n >= 0, (
            f"permutation: n is a tensor or an int >= 0; got {n!r}."
        )
        assert dtype in ("int32", "int16", "float32"), f"permutation: dtype int32, int16 or float32; got {dtype}."
        order = self._draw(ops.rng_permutation, n=n if isinstance(n, Tensor) else int(n))
        return order if dtype == "int32" else order.astype(dtype)

    def shuffle(self, inp: Tensor) -> None:
        """Shuffle a tensor along its first axis, in place.

        >>> x = mge.tensor([1, 2, 3])
        >>> mge.random.shuffle(x)
        >>> sorted(x.tolist())
        [1, 2, 3]
        """
        if not isinstance(inp, Tensor):
            raise TypeError(f"shuffle: needs a Tensor, which it changes; got a {type(inp).__name__}.")
        assert inp.size > 0, "shuffle: the tensor has no elements."
        inp._reset(self.permutation(inp))


_states: dict[str, Tensor] = {}
_seeded: weakref.WeakSet[RNG] = weakref.WeakSet()
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


def generator_states(like: Iterable[Tensor]) -> list[Tensor]:
    """The states of all generators: global ones of the default device and those of ``like``, and seeded ones."""
    _global_state()
    for t in like:
        _global_state(str(t.device))
    return [*_states.values(), *(g._state for g in _seeded if g._state is not None)]


def seed(seed: int) -> None:
    """Start the global generators of all devices anew.

    >>> mge.random.seed(7)
    >>> x = mge.random.normal(size=(3,)).numpy()
    >>> mge.random.seed(7)
    >>> np.array_equal(mge.random.normal(size=(3,)).numpy(), x)
    True
    """
    global _global_seed
    _global_seed = _checked_seed(seed, "seed")
    for key, cell in _states.items():
        cell._reset(_make_state(_global_seed, key))


def get_rng_state() -> dict[str, Any]:
    """Where the global generators stand: all that dropout and ``random`` need to go on after a restart.

    Returns:
        The seed and, for each device that has drawn, four 32-bit words. ``mge.save`` writes it, ``set_rng_state`` takes
        it back. Generators made by ``RNG(seed=...)`` have ``get_state`` of their own.

    >>> state = mge.random.get_rng_state()
    >>> x = mge.random.normal(size=(3,)).numpy()
    >>> mge.random.set_rng_state(state)
    >>> np.array_equal(mge.random.normal(size=(3,)).numpy(), x)
    True
    """
    return {"seed": _global_seed, "devices": {key: _words(cell) for key, cell in _states.items()}}


def set_rng_state(state: dict[str, Any]) -> None:
    """Let the global generators go on from where ``get_rng_state`` was called.

    Args:
        state: what it returned; devices that had not drawn then start from its seed.
    """
    if not isinstance(state, dict) or set(state) != {"seed", "devices"}:
        raise ValueError("set_rng_state: needs what get_rng_state returned, a dict of 'seed' and 'devices'.")
    states = {key: _state_of(words, key, "set_rng_state") for key, words in state["devices"].items()}
    seed(state["seed"])
    for key, value in states.items():
        _global_state(key)._reset(value)


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
