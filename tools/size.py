#!/usr/bin/env python3
"""Print the stripped sizes of what ships, from the release and lite builds."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent / "build"
SHIPPED = (
    ("release", "python/megengine/core/_core*.so"),
    ("release", "python/megenginelite/libs/liblite.so"),
    ("lite", "python/megenginelite/libs/liblite.so"),
    ("lite", "bin/load_and_run"),
)

out = ROOT / "size"
out.mkdir(exist_ok=True)
for preset, pattern in SHIPPED:
    for file in (ROOT / preset).glob(pattern):
        stripped = out / f"{preset}-{file.name}"
        subprocess.run(["strip", "-o", stripped, file], check=True)
        print(f"{preset:8} {file.name:44} {stripped.stat().st_size / 1024:8.0f} kB stripped")
