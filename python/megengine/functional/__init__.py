"""Functions on tensors: ``import megengine.functional as F``."""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ..core._habits import no_attribute as _no_attribute
from . import debug_param, elemwise, external, inplace, loss, math, metric, nn, tensor, utils, vision
from .elemwise import *
from .math import *
from .math import einsum
from .metric import *
from .nn import *
from .tensor import *

if not _TYPE_CHECKING:  # type checkers shall say that a name is not there

    def __getattr__(name: str) -> _Any:
        found = (m for m in (nn, vision) if getattr(getattr(m, name, None), "__module__", "").startswith(__name__))
        inside = next(found, None)
        way = f"it is F.{inside.__name__.rpartition('.')[2]}.{name}" if inside else ""
        raise _no_attribute(__name__, name, way)
