"""MegEngine: a deep-learning framework that trains and deploys with one op system.

>>> import megengine as mge
>>> mge.tensor([1.0, 2.0]) + 1
Tensor([2. 3.], device=xpux:0)
"""

from __future__ import annotations

import atexit as _atexit_module
import sys as _sys
import typing as _typing
from collections.abc import Callable as _Callable
from importlib import import_module as _import_module

from . import _pickle as _pickle
from . import (
    amp,
    autodiff,
    config,
    core,
    device,
    distributed,
    distributions,
    dtr,
    functional,
    jit,
    logger,
    module,
    optimizer,
    random,
    serialization,
    utils,
    version,
)
from .core import _core
from .core._core import full_sync as _full_sync
from .core._core import sync as _sync
from .core._habits import no_attribute as _no_attribute
from .device import *
from .logger import enable_debug_log, get_logger, set_log_file, set_log_level
from .serialization import load, save
from .tensor import Parameter, Tensor, tensor
from .version import __version__

if _typing.TYPE_CHECKING:
    from . import data as data
    from . import experimental as experimental
    from . import hub as hub
    from . import quantization as quantization
    from . import safetensors as safetensors
    from . import traced_module as traced_module
    from .utils import comp_graph_tools as cgtools

# Without it type checkers take imported names for private ones.
__all__ = [
    "Parameter",
    "Tensor",
    "__version__",
    "amp",
    "autodiff",
    "cgtools",
    "config",
    "core",
    "device",
    "distributed",
    "distributions",
    "dtr",
    "enable_debug_log",
    "functional",
    "get_logger",
    "jit",
    "load",
    "logger",
    "module",
    "optimizer",
    "random",
    "save",
    "serialization",
    "set_log_file",
    "set_log_level",
    "tensor",
    "utils",
    "version",
]
__all__ += device.__all__

# Sub-packages imported when first used, so that `import megengine` stays quick.
_LAZY = frozenset({"data", "experimental", "hub", "quantization", "safetensors", "tools", "traced_module"})


if not _typing.TYPE_CHECKING:  # a type checker would take any name for one of the package

    def __getattr__(name: str) -> _typing.Any:
        if name == "cgtools":
            return _import_module(".utils.comp_graph_tools", __name__)
        if name in _LAZY:
            return _import_module(f".{name}", __name__)
        raise _no_attribute(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, "cgtools"})


# A file of a traced module is read by that package, which is imported for the first one.
_pickle.extend("megengine.traced_module.", lambda: _import_module(".traced_module._unpickle", __name__).extension())

_exit_handlers: list[_Callable[[], _typing.Any]] = []


def _atexit(handler: _Callable[[], _typing.Any]) -> None:
    """Run ``handler`` when the interpreter ends; the last registered runs first."""
    _exit_handlers.append(handler)


def _run_exit_handlers() -> None:
    """All of them, also when one fails."""
    if _exit_handlers:
        try:
            _exit_handlers.pop()()
        finally:
            _run_exit_handlers()


def _close() -> None:
    """Finish what is queued and stop the worker."""
    _core.shutdown()


def _exit(code: int) -> _typing.NoReturn:
    """Run the exit handlers and end the program."""
    _run_exit_handlers()
    _sys.exit(code)


_atexit(_close)
_atexit_module.register(_run_exit_handlers)
