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

#: Functions that programs find in modules where the original happens to import them: F.nn.concat, F.loss.log. None that
#: is called like a builtin, which the module itself may use.
_FOUND_IN = {
    nn: "broadcast_to concat exp expand_dims log log1p maximum minimum ones repeat reshape squeeze transpose zeros "
    "zeros_like",
    loss: "broadcast_to cumsum equal indexing_one_hot linspace log logaddexp logsigmoid logsumexp maximum ones relu "
    "where zeros",
    math: "broadcast_to expand_dims squeeze",
    metric: "broadcast_to maximum minimum transpose",
    tensor: "ceil cos sin",
    utils: "maximum minimum ones zeros",
    vision: "argsort broadcast_to concat expand_dims floor reshape transpose",
}
for _module, _names in _FOUND_IN.items():
    for _name in _names.split():
        vars(_module).setdefault(_name, globals()[_name])
del _FOUND_IN, _module, _names, _name

# Not __getattr__: a module that has one loses the interpreter's fast attribute access, and F.relu costs 50 ns more.
for _names_of in (globals(), vars(nn)):
    _explain_names(_names_of)
del _names_of
