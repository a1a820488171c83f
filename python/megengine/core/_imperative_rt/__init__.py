"""Names of the original's private runtime module that programs import. Thin, and only what exists here."""

from .._core import CompNode

__all__ = ["CompNode"]
