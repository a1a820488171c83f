"""Where MegEngine keeps ``SublinearMemoryConfig``."""

from .config import SublinearMemoryConfig

__all__ = ["SublinearMemoryConfig"]
