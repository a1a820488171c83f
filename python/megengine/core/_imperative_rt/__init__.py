"""Names of the original's private runtime module that programs import. Thin, and only what exists here."""

from .._core import CompNode
from .opdef import OpDef

__all__ = ["CompNode", "OpDef"]
