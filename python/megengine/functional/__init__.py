"""Functions on tensors: ``import megengine.functional as F``."""

from ..core._habits import explain_names as _explain_names
from . import debug_param, elemwise, external, inplace, loss, math, metric, nn, tensor, utils, vision
from .elemwise import *
from .math import *
from .math import einsum
from .metric import *
from .nn import *
from .tensor import *

# Not __getattr__: a module that has one loses the interpreter's fast attribute access, and F.relu costs 50 ns more.
_explain_names(globals(), (nn, vision))
