#!/usr/bin/env python3
"""Copy the Python packages beside a preset's binaries: tools/stage_python.py build/release/python."""

import argparse
import compileall
import shutil
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", type=Path, help="where the packages go")
folder = parser.parse_args().folder
source = Path(__file__).parent.parent / "python"
for package in ("megengine", "megenginelite"):
    if (source / package).is_dir():
        ignore = shutil.ignore_patterns("*.so", "*.so.*", "__pycache__")
        shutil.copytree(source / package, folder / package, ignore=ignore, dirs_exist_ok=True)
        compileall.compile_dir(folder / package, quiet=1)  # as pip does for an installed package
