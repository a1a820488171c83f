"""Where MegEngine keeps ``DTRConfig``."""

from .config import DTRConfig

__all__ = ["DTRConfig"]
