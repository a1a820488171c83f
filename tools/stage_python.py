#!/usr/bin/env python3
"""Copy the Python packages beside a preset's binaries: tools/stage_python.py build/release/python."""

import compileall
import shutil
import sys
from pathlib import Path

source = Path(__file__).parent.parent / "python"
for package in ("megengine", "megenginelite"):
    if (source / package).is_dir():
        ignore = shutil.ignore_patterns("*.so", "*.so.*", "__pycache__")
        shutil.copytree(source / package, Path(sys.argv[1]) / package, ignore=ignore, dirs_exist_ok=True)
        compileall.compile_dir(Path(sys.argv[1]) / package, quiet=1)  # as pip does for an installed package
