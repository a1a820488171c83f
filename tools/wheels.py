#!/usr/bin/env python3
"""Wheels for every Python that is supported, and their test in fresh virtual environments.

    tools/wheels.py build [3.10 3.11 ...]    dist/*.whl, one for each
    tools/wheels.py test  [3.10 3.11 ...]    tests/python/test_install.py in a new virtual environment for each

An interpreter that is not found is named and the exit status is 1; name the versions that you want to do with fewer.
Looked at: $PYTHON3_10 (and so on), python3.10 on the path, and the versions of pyenv. Why one wheel for each: ADR 0030.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
PROBE = """
import os, sys, sysconfig
print("%d.%d" % sys.version_info[:2])
print(sys.executable)
import ensurepip
header = sysconfig.get_path("include") + "/Python.h"
sys.exit(0 if os.path.exists(header) else f"{header} is missing; install the development files of this Python")
"""


def candidates(version: str) -> list[str]:
    named = os.environ.get("PYTHON" + version.replace(".", "_"))
    if named:
        return [named]
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    found = sorted(
        pyenv.glob(f"{version}.*/bin/python"), key=lambda p: [int(n) for n in re.findall(r"\d+", p.parts[-3])]
    )
    on_path = shutil.which(f"python{version}")
    return [str(p) for p in reversed(found)] + ([on_path] if on_path else [])


def find(version: str) -> tuple[str, str]:
    """An interpreter of that version that can build, and "", or "" and why there is none."""
    why = f"no python{version} on the path, in pyenv, or in $PYTHON{version.replace('.', '_')}"
    for python in candidates(version):
        try:
            done = subprocess.run([python, "-c", PROBE], capture_output=True, text=True)
        except OSError as e:
            why = str(e)
            continue
        said = done.stdout.splitlines()
        if done.returncode == 0 and said[0] == version:
            return said[1], ""
        errors = done.stderr.strip().splitlines() or [f"ends with {done.returncode}"]
        why = f"{python}: {errors[-1] if done.returncode else 'is Python ' + said[0]}"
    return "", why


def package_version() -> str:
    text = (ROOT / "python/megengine/version.py").read_text()
    found = re.search(r'__version__ = "(.*)"', text)
    assert found
    return found[1]


def wheel_of(version: str) -> pathlib.Path:
    tag = "cp" + version.replace(".", "")
    found = list(DIST.glob(f"megengine-{package_version()}-{tag}-{tag}-*.whl"))
    if len(found) != 1:
        raise SystemExit(f"dist/ has {len(found)} wheels for Python {version}; `make wheels` makes one.")
    return found[0]


def build(version: str, python: str) -> str:
    for old in DIST.glob(f"*-cp{version.replace('.', '')}-*.whl"):
        old.unlink()
    # In isolation: with the packages that pyproject.toml names and no others. ccache compiles the engine once for all,
    # and not at all after `make bench`; left alone, each Python names the compiler its own way.
    env = {"CC": "cc", "CXX": "c++", **os.environ}
    subprocess.run(
        [python, "-m", "pip", "wheel", "-q", str(ROOT), "--no-deps", "-w", str(DIST)], cwd=DIST, env=env, check=True
    )
    wheel = wheel_of(version)
    return f"{wheel.name}, {wheel.stat().st_size / 2**20:.1f} MiB"


def test(version: str, python: str) -> str:
    with tempfile.TemporaryDirectory(prefix=f"mge-wheel-{version}-") as folder:
        venv = pathlib.Path(folder) / "venv"
        subprocess.run([python, "-m", "venv", str(venv)], check=True)
        pip = [str(venv / "bin/python"), "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "-q", str(wheel_of(version)), "pytest"], check=True)
        subprocess.run([*pip, "check"], check=True, stdout=subprocess.DEVNULL)
        # The rest of the path stays for cmake and the compilers.
        env = {**os.environ, "PATH": f"{venv}/bin:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}
        line = [str(venv / "bin/python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
        done = subprocess.run(
            [*line, str(ROOT / "tests/python/test_install.py")], env=env, cwd=folder, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise SystemExit(done.stdout + done.stderr)
        return done.stdout.strip().splitlines()[-1].strip("= ")


def main() -> int:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("what", choices=("build", "test"))
    args.add_argument("versions", nargs="*", default=VERSIONS, metavar="VERSION")
    given = args.parse_args()
    DIST.mkdir(exist_ok=True)
    missing = {}
    for version in given.versions:
        python, why = find(version)
        if not python:
            missing[version] = why
            continue
        start = time.monotonic()
        print(f"== Python {version}: {python}", flush=True)
        done = (build if given.what == "build" else test)(version, python)
        print(f"   {done} ({time.monotonic() - start:.0f} s)", flush=True)
    for version, why in missing.items():
        print(f"NOT DONE for Python {version}: {why}.", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
