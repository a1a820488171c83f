"""Names of the original's private runtime module that programs import. Thin, and only what exists here."""

from .._core import CompNode
from ..tensor.dtype import bfloat16, intb1, intb2, intb4
from .opdef import OpDef

# The types of NumPy scalars, under the names that pickles of arrays hold.
pybfloat16, pyintb1, pyintb2, pyintb4 = (d.type for d in (bfloat16, intb1, intb2, intb4))

__all__ = ["CompNode", "OpDef", "pybfloat16", "pyintb1", "pyintb2", "pyintb4"]
