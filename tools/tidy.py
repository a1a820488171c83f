#!/usr/bin/env python3
"""Run clang-tidy on the changed C++ sources. Usage: tools/tidy.py BUILD_DIR [file...].

Changed means: differs from HEAD or is not yet known to git; in a clean tree, what the last commit changed. Starts no
new file after BUDGET_S and says how many were left, so that a large commit does not turn into an hour of linting.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGET_S = 100
SKIPPED = ("tests/",)  # some use GCC's _Float16 as their judge


def git(*args: str) -> list[str]:
    result = subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, text=True, check=False)
    return result.stdout.splitlines()


def changed() -> list[str]:
    files = git("diff", "--name-only", "HEAD") + git("ls-files", "--others", "--exclude-standard")
    return files or git("diff", "--name-only", "HEAD~1", "HEAD")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="a folder with compile_commands.json, build/dev for example")
    parser.add_argument("files", nargs="*", help="those that differ from the last commit when none is named")
    asked = parser.parse_args()
    build, named = asked.build, asked.files
    if not (ROOT / build / "compile_commands.json").exists():
        parser.error(f"{build} has no compile_commands.json: cmake --preset dev makes one in build/dev")
    if not named and not shutil.which("git"):
        print("clang-tidy: skipped, without git there is no telling what changed")
        return 0
    known = {entry["file"] for entry in json.loads((ROOT / build / "compile_commands.json").read_text())}
    files = [f for f in named or changed() if str(ROOT / f) in known and not f.startswith(SKIPPED)]
    flags = ["--extra-arg=-Wno-error", "--extra-arg=-Wno-unknown-warning-option"]
    command = ["clang-tidy", "-p", build, "--quiet", *flags]
    stop = time.monotonic() + BUDGET_S

    def check(file: str) -> tuple[str, bool, str]:
        if time.monotonic() > stop:
            return "left", True, ""
        result = subprocess.run([*command, file], cwd=ROOT, capture_output=True, text=True, check=False)
        return "done", result.returncode == 0, result.stdout

    with ThreadPoolExecutor() as pool:
        results = list(pool.map(check, files))
    for _, good, text in results:
        if not good:
            print(text)
    left = sum(state == "left" for state, _, _ in results)
    bad = sum(not good for _, good, _ in results)
    print(f"clang-tidy: {len(files) - left} files checked, {bad} with findings, {left} left for lack of time")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
