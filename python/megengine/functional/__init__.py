"""Functions on tensors: ``import megengine.functional as F``."""

from . import debug_param, elemwise, external, inplace, loss, math, metric, nn, tensor, utils, vision
from .elemwise import *
from .math import *
from .math import einsum
from .metric import *
from .nn import *
from .tensor import *
