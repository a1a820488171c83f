#!/usr/bin/env python3
"""Run examples/distributed with the true launchers: torchrun, mpirun and Ray. ``make launchers`` calls it.

    tools/launchers.py --torchrun .venv-bench-torch/bin/torchrun --ray-python .venv-ray/bin/python

Each must end with the accuracy that the launcher of the package gives; `make test` runs stand-ins that set the same
environment.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRAIN = str(ROOT / "examples" / "distributed" / "train.py")
RAY = str(ROOT / "examples" / "distributed" / "ray_train.py")


def free_port() -> str:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def commands(torchrun: str, ray_python: str) -> dict[str, list[str]]:
    me = sys.executable
    return {
        "launcher": [me, TRAIN, "--processes", "2"],
        "torchrun": [torchrun, "--nproc-per-node", "2", "--master-port", free_port(), "--no-python", me, TRAIN],
        "torchrun --standalone": [torchrun, "--standalone", "--nproc-per-node", "2", "--no-python", me, TRAIN],
        "mpirun": ["mpirun", "--oversubscribe", "-n", "2", me, TRAIN],
        "ray": [ray_python, RAY, "--processes", "2"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torchrun", required=True)
    parser.add_argument("--ray-python", required=True)
    parser.add_argument("--steps", default="100")
    parser.add_argument("--only", default="", help="names that begin so")
    a = parser.parse_args()
    env = {**os.environ, "MGE_DIST_TIMEOUT": "120", "RAY_raylet_start_wait_time_s": "120"}
    env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    failed = []
    for name, command in commands(a.torchrun, a.ray_python).items():
        if not name.startswith(a.only):
            continue
        start = time.monotonic()
        try:
            done = subprocess.run(
                [*command, "--steps", a.steps],
                env={**env, "MASTER_PORT": free_port()},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=300,
            )
            text, code = done.stdout, done.returncode
        except subprocess.TimeoutExpired as e:
            text, code = str(e.stdout), -1
        found = re.search(r"processes 2  accuracy (\S+)", text)
        if code or found is None:
            failed.append(name)
            print(f"{name}: FAILED with code {code}\n{text}")
        else:
            print(f"{name:22} accuracy {found[1]}  {time.monotonic() - start:5.1f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
