"""Functions on tensors: ``import megengine.functional as F``."""

from ..core._habits import explain_names as _explain_names
from . import debug_param as debug_param
from . import distributed as distributed
from . import elemwise as elemwise
from . import external as external
from . import inplace as inplace
from . import loss as loss
from . import math as math
from . import metric as metric
from . import nn as nn
from . import quantized as quantized
from . import tensor as tensor
from . import utils as utils
from . import vision as vision
from .elemwise import *
from .math import *
from .math import einsum as einsum
from .metric import *
from .nn import *
from .tensor import *

# Not __getattr__: a module that has one loses the interpreter's fast attribute access, and F.relu costs 50 ns more.
_explain_names(globals())
