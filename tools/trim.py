#!/usr/bin/env python3
"""Build the runtime for given models and nothing else: their ops, dtypes and, with --isa, some instruction sets.

    tools/trim net.mge other.mge -o build/trim --isa avx2
    tools/trim net.mge -o build/trim --with fast_run,profiling      and what a program asks for beside running it
    tools/trim -o build/empty                             the runtime without any op

The models, ours or MegEngine's, are loaded and run once by ``mge-lite needs`` of a full build; the ops they looked up
and the passes and plans that did something for them are the list (OUT/ops.txt) that the build is made of. Functions of
the API that need more are there and say which --with brings it (src/base/features.h). The result is OUT/liblite.so,
stripped, and OUT/bin/load_and_run. Each model is then run by both, with the same random inputs, and must give the same
bits. A model that needs more is refused when it is loaded, with all that is missing.
"""

from __future__ import annotations

import argparse
import array
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NATIVE = b"\x89MGE\r\n\x1a\n"
ISAS = ("sse4", "avx2", "avx512")
FEATURES = dict(re.findall(r'^ +\{"(\w+)", (false|true)\}', (ROOT / "src/base/features.h").read_text(), re.MULTILINE))


def run(*command: object, quiet: bool = True) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=quiet, text=True)
    if done.returncode:
        text = (done.stderr or done.stdout or "").strip()
        sys.exit(f"trim: {Path(str(command[0])).name} failed: {text[-2000:]}")
    return done.stdout or ""


def full_build(given: Path | None) -> Path:
    """The folder with mge-lite and load_and_run of a build that has all ops of inference."""
    folders = [given] if given else [ROOT / "build" / preset / "bin" for preset in ("lite", "release", "dev")]
    for folder in folders:
        if (folder / "mge-lite").exists() and (folder / "load_and_run").exists():
            return folder
    sys.exit(f"trim: there is no full build to run the models with in {folders[0]}. `make lite` makes one.")


def configure(out: Path, models: list[Path], isas: list[str], crypto: bool, relr: bool) -> Path:
    build = out / "build"
    foreign = any(model.read_bytes()[:8] != NATIVE for model in models)
    switches = {
        "CMAKE_BUILD_TYPE": "MinSizeRel",
        "MGE_LITE_ONLY": "ON",
        "MGE_OPS": out / "ops.txt",
        "MGE_ISAS": ";".join(isas) or "all",
        "MGE_ORIGINAL_FILES": "ON" if foreign else "OFF",
        "MGE_WITH_CRYPTO": "ON" if crypto else "OFF",
        "MGE_RELR": "ON" if relr else "OFF",
    }
    run(
        "cmake",
        "-S",
        ROOT,
        "-B",
        build,
        "-G",
        "Ninja",
        "--log-level=WARNING",
        *(f"-D{k}={v}" for k, v in switches.items()),
    )
    return build


def random_inputs(full: Path, model: Path, folder: Path) -> list[str]:
    """``--input`` of load_and_run for the float32 inputs; the others stay as they are."""
    values = []
    for i, x in enumerate(json.loads(run(full / "mge-lite", "info", model, "--json"))["inputs"]):
        if x["dtype"] != "float32" or x["name"].find(":") >= 0:
            continue
        count = 1
        for size in x["shape"]:
            count *= size
        file = folder / f"input{i}.bin"
        file.write_bytes(array.array("f", (random.gauss(0, 1) for _ in range(count))).tobytes())
        values.append(f"{x['name']}:{file}")
    return ["--input", ";".join(values)] if values else []


def outputs(program: Path, model: Path, arguments: list[str], folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    run(program, model, "--iter", 1, "--warmup_iter", 0, "--out_npy", folder, *arguments)
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def check(full: Path, trimmed: Path, model: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments = random_inputs(full, model, folder)
        want = outputs(full / "load_and_run", model, arguments, folder / "full")
        got = outputs(trimmed, model, arguments, folder / "trimmed")
        if want != got:
            sys.exit(f"trim: {model.name}: outputs of the trimmed runtime differ. Please report it with the model.")
        print(f"trim: {model.name}: {len(want)} outputs, same bits as the full build")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, help="model files; none for the empty runtime")
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "build/trim", help="the folder of the result")
    parser.add_argument("--isa", default="", help=f"instruction sets of x86, of {','.join(ISAS)}; all when left out")
    asked = ", ".join(name for name, found in FEATURES.items() if found == "false")
    parser.add_argument(
        "--with", dest="features", default="", help=f"parts that a program asks for, of {asked}; or all"
    )
    parser.add_argument("--crypto", action="store_true", help="with AES, for encrypted models; --with ciphers, too")
    parser.add_argument(
        "--old-libc", action="store_true", help="also for glibc before 2.36: relocations are not packed"
    )
    parser.add_argument("--list", action="store_true", help="write OUT/ops.txt and build nothing")
    parser.add_argument("--full", type=Path, help="folder with mge-lite and load_and_run of a full build")
    args = parser.parse_args()
    isas = [name for name in args.isa.split(",") if name]
    if unknown := [name for name in isas if name not in ISAS]:
        parser.error(f"--isa: expected some of {', '.join(ISAS)}; got {', '.join(unknown)}.")
    features = [name for name in args.features.split(",") if name]
    features = list(FEATURES) if features == ["all"] else features + ["ciphers"] * args.crypto
    if unknown := [name for name in features if name not in FEATURES]:
        parser.error(f"--with: expected some of {', '.join(FEATURES)}, or all; got {', '.join(unknown)}.")
    for model in args.models:
        if not model.is_file():
            parser.error(f"there is no file {model}.")
    out: Path = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    full = full_build(args.full)
    listed = run(full / "mge-lite", "needs", *args.models)
    listed += "".join(f"feature {name}\n" for name in features if f"feature {name}\n" not in listed)
    (out / "ops.txt").write_text(listed)
    count = sum(line.startswith("op ") for line in listed.splitlines())
    print(f"trim: {count} ops for {len(args.models)} models -> {out / 'ops.txt'}")
    if args.list:
        return
    build = configure(out, args.models, isas, args.crypto, not args.old_libc)
    run("cmake", "--build", build, "--target", "lite_shared", "load_and_run", quiet=not sys.stdout.isatty())
    library = out / "liblite.so"
    run("strip", "-o", library, build / "python/megenginelite/libs/liblite.so")
    run(sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])", library)  # a loader takes it
    (out / "bin").mkdir(exist_ok=True)
    shutil.copy2(build / "bin/load_and_run", out / "bin/load_and_run")
    for model in args.models:
        check(full, out / "bin/load_and_run", model)
    print(f"trim: {os.stat(library).st_size / 1024:.0f} kB {library}")


if __name__ == "__main__":
    main()
