"""Settings of the engine, as attributes of this module: ``config.async_level = 0``.

>>> from megengine import config
>>> with config._override(async_level=0):
...     config.async_level
0
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .core import _core, get_option, set_option

__all__ = [
    "_auto_format_convert",
    "_compute_mode",
    "_override",
    "async_level",
    "benchmark_kernel",
    "benchmark_with_subprocess",
    "deterministic_kernel",
    "disable_memory_forwarding",
]

if TYPE_CHECKING:
    benchmark_kernel: bool
    deterministic_kernel: bool
    benchmark_with_subprocess: bool
    async_level: int
    disable_memory_forwarding: bool
    _compute_mode: str
    _auto_format_convert: bool
    _bn_format: str

_values: dict[str, Any] = {
    "benchmark_kernel": False,
    "deterministic_kernel": False,
    "auto_format_convert": True,
    "bn_format": "dim_1c11",
}


def _set(name: str, value: Any) -> None:
    _values[name] = value
    _core.set_config(tuple(_values.values()))  # recordings of other settings are not for these


_core.set_config(tuple(_values.values()))


def _apply_strategy() -> None:
    profile = _values["benchmark_kernel"]
    if profile and not _core.tuning_file():
        _core.set_tuning_file(_core.default_tuning_file())
    set_option("kernel_strategy", (2 if profile else 1) | (4 if _values["deterministic_kernel"] else 0))


class _Config(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        if not hasattr(self, name) and not name.startswith("_"):
            near = difflib.get_close_matches(name, __all__, 1, 0.5)
            way = f"Did you mean {near[0]}?" if near else f"There are {', '.join(n for n in __all__ if n[0] != '_')}."
            raise AttributeError(f"config: there is no setting {name!r}. {way}")
        super().__setattr__(name, value)

    @property
    def benchmark_kernel(self) -> bool:
        """Choose kernels by measuring them. Default False.

        Winners are kept in ``$MGE_FASTRUN_CACHE_DIR`` (``~/.cache/megengine``), so another process need not measure;
        with ``MGE_FASTRUN_CACHE_TYPE=MEMORY`` they are kept in memory only. Changing it forgets all choices.
        """
        return bool(_values["benchmark_kernel"])

    @benchmark_kernel.setter
    def benchmark_kernel(self, option: bool) -> None:
        _set("benchmark_kernel", bool(option))
        _apply_strategy()

    @property
    def deterministic_kernel(self) -> bool:
        """Use only kernels whose bits do not depend on the number of threads. Default False."""
        return bool(_values["deterministic_kernel"])

    @deterministic_kernel.setter
    def deterministic_kernel(self, option: bool) -> None:
        _set("deterministic_kernel", bool(option))
        _apply_strategy()

    @property
    def benchmark_with_subprocess(self) -> bool:
        """Measure kernels in another process. Default False; setting it has no effect here."""
        return False

    @benchmark_with_subprocess.setter
    def benchmark_with_subprocess(self, option: bool) -> None:
        pass

    @property
    def async_level(self) -> int:
        """2: errors may surface later; 1: bad arguments are reported at once; 0: all errors are. Default 2."""
        return get_option("async_level")

    @async_level.setter
    def async_level(self, level: int) -> None:
        assert level in (0, 1, 2), f"async_level: must be 0, 1 or 2; got {level!r}."
        set_option("async_level", level)

    @property
    def disable_memory_forwarding(self) -> bool:
        """Give every tensor storage of its own. Default False."""
        return bool(get_option("disable_memory_forwarding"))

    @disable_memory_forwarding.setter
    def disable_memory_forwarding(self, disable: bool) -> None:
        set_option("disable_memory_forwarding", int(disable))

    @property
    def _compute_mode(self) -> str:
        """``"float32"``: float16 convolutions and products add up in float32. Default ``"default"``, in each thread."""
        return "float32" if _core.mode_word() & _core.MODE_FLOAT32_SUMS else "default"

    @_compute_mode.setter
    def _compute_mode(self, mode: str) -> None:
        assert mode in ("default", "float32"), f"_compute_mode: must be default or float32; got {mode!r}."
        word = _core.mode_word() & ~_core.MODE_FLOAT32_SUMS
        _core.set_mode_word(word | (_core.MODE_FLOAT32_SUMS if mode == "float32" else 0))

    @property
    def _auto_format_convert(self) -> bool:
        """Keep the nhwc tag of tensors through ops. Default True."""
        return bool(_values["auto_format_convert"])

    @_auto_format_convert.setter
    def _auto_format_convert(self, option: bool) -> None:
        _set("auto_format_convert", bool(option))

    @property
    def _bn_format(self) -> str:
        """The shape of batch-norm parameters. Default ``"dim_1c11"``."""
        return str(_values["bn_format"])

    @_bn_format.setter
    def _bn_format(self, format: str) -> None:
        _set("bn_format", format)


@contextmanager
def _override(
    benchmark_kernel: bool | None = None,
    deterministic_kernel: bool | None = None,
    async_level: int | None = None,
    compute_mode: str | None = None,
) -> Iterator[None]:
    """Change settings for a block, or, as a decorator, for a function."""
    this = sys.modules[__name__]
    wanted = {
        "benchmark_kernel": benchmark_kernel,
        "deterministic_kernel": deterministic_kernel,
        "async_level": async_level,
        "_compute_mode": compute_mode,
    }
    before = {k: getattr(this, k) for k in wanted}
    try:
        for k, v in wanted.items():
            if v is not None:
                setattr(this, k, v)
        yield
    finally:
        for k, v in before.items():
            setattr(this, k, v)


sys.modules[__name__].__class__ = _Config
