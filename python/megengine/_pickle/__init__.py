"""Pickles as data: a stack machine of our own reads them, and what is written names nothing that moves.

``machine`` runs the opcodes of a file, ``names`` says what a file may name and what is made of it, ``arrays`` makes
what NumPy's pickles describe, ``writer`` writes. Because of a file nothing is imported, and nothing is called but
functions of this package and constructors of plain data (docs/adr/0026-pickles-as-data.md).
"""

from .machine import CutShort, Damaged, Machine, Refused
from .names import build, extend, find, find_arrays
from .writer import dump

__all__ = ["CutShort", "Damaged", "Machine", "Refused", "build", "dump", "extend", "find", "find_arrays"]
