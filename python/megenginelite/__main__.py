"""``python -m megenginelite``: what a compiler needs to build C and C++ programs against this installation.

cmake -S . -B build -DMegEngineLite_DIR="$(python -m megenginelite --cmake-dir)"
c++ -std=c++14 program.cpp $(python -m megenginelite --includes --libs)
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import __version__

ROOT = Path(__file__).resolve().parent


def _folder(*parts: str) -> Path:
    path = ROOT.joinpath(*parts)
    if not path.is_dir():
        raise SystemExit(
            f"megenginelite: {path} does not exist; this is a source tree, not an installation. Install the wheel "
            "(`pip install .`), or use DIR/megenginelite of `cmake --install build/dev --component lite --prefix DIR`."
        )
    return path


def _flags() -> dict[str, str]:
    include, libs = _folder("include"), _folder("libs")
    return {
        "includes": f"-I{include}",
        "libs": f"-L{libs} -llite -Wl,-rpath,{libs}",
        "cmake_dir": str(_folder("share", "cmake", "MegEngineLite")),
        "pkgconfig_dir": str(_folder("share", "pkgconfig")),
    }


def main(argv: list[str] | None = None) -> int:
    """Print what was asked for; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m megenginelite", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--includes", action="store_true", help="the compiler's flag for the headers (C++14, or C99)")
    parser.add_argument("--libs", action="store_true", help="the linker's flags for liblite.so")
    parser.add_argument(
        "--cmake-dir", "--cmakedir", action="store_true", help="the folder of MegEngineLiteConfig.cmake"
    )
    parser.add_argument("--pkgconfig-dir", "--pkgconfigdir", action="store_true", help="the folder of megenginelite.pc")
    asked = [name for name, on in vars(parser.parse_args(argv)).items() if on]
    if not asked:
        parser.print_help()
        return 1
    flags = _flags()
    print(" ".join(flags[name] for name in asked))
    return 0


if __name__ == "__main__":
    sys.exit(main())
