"""The table of ``lite.py`` on a machine that has neither a network nor a compiler: a folder of 58 MB with Lite, its
rivals and the networks.

    python benchmarks/lite_pack.py make FOLDER --lite build/lite --lite-python PYTHON --wheels WHEELS
    there, with the Python that the wheels are for: python3.12 FOLDER/lite_pack.py run

WHEELS is what ``pip download --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux_2_28_x86_64`` has
put there of numpy, onnxruntime, ncnn, mnn and openvino. ``run`` unpacks into a temporary folder, gives every peer one
cell after the other until its minutes are over, and prints a table for each number of threads, then what each of our
ops takes with them. Weights repeat 4093 values, which packs well and takes as long to multiply.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from typing import Any

import lite

HERE = pathlib.Path(__file__).parent
NETS = tuple(net for net in lite.NETS if net != "empty")
SCRIPTS = ("lite.py", "lite_mge.py", "lite_nets.py", "lite_onnx.py", "lite_pack.py", "lite_run.py", "peers.py")
# Parts of wheels that running a network on the CPU needs no file of.
LEFT_OUT = (
    "*.pyi", "*.h", "*.hpp", "*/tests/*", "*/include/*", "*.dist-info/*", "*.a", "numpy/f2py/*",
    "numpy/_core/lib/*", "numpy/_core/*simd*.so", "_tools.*", "ncnn/model_zoo/*",
    "onnxruntime/capi/libonnxruntime.so*", "onnxruntime/transformers/*", "onnxruntime/tools/*",
    "onnxruntime/quantization/*", "onnxruntime/ThirdPartyNotices.txt", "openvino/libs/*gpu*", "openvino/libs/*npu*",
    "openvino/libs/cache.json", "openvino/libs/*tensorflow*", "openvino/libs/*pytorch*", "openvino/libs/*paddle*",
    "openvino/libs/*gguf*", "openvino/libs/*jax*", "openvino/libs/*_c.so*", "openvino/frontend/*.so",
    "openvino/tools/*",
)  # fmt: skip


def pack(archive: pathlib.Path, folder: pathlib.Path, *how: str) -> None:
    """By the program, which is faster. Networks in one piece: repetitions are not seen from one to the next."""
    with archive.open("wb") as out:
        tar = subprocess.Popen(["tar", "c", "-C", str(folder), "."], stdout=subprocess.PIPE)
        subprocess.run(["xz", *how], stdin=tar.stdout, stdout=out, check=True)
    print(f"{archive.name}: {archive.stat().st_size / 1e6:.1f} MB", flush=True)


def unpack_wheels(wheels: pathlib.Path, to: pathlib.Path) -> None:
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as z:
            for name in z.namelist():
                if not any(fnmatch.fnmatch(name, pattern) for pattern in LEFT_OUT):
                    z.extract(name, to)


def stage_lite(build: pathlib.Path, to: pathlib.Path) -> None:
    """Lite's package with the libraries that it needs and other machines may lack, and load_and_run beside them."""
    shutil.copytree(
        HERE.parent / "python/megenginelite", to / "megenginelite", ignore=shutil.ignore_patterns("libs", "__pycache__")
    )
    libs = to / "megenginelite/libs"
    libs.mkdir()
    for file in (build / "python/megenginelite/libs/liblite.so", build / "bin/load_and_run"):
        subprocess.run(["strip", "-o", str(libs / file.name), str(file)], check=True)
        listed = subprocess.run(["ldd", str(file)], check=True, capture_output=True, text=True).stdout
        for line in listed.splitlines():
            name, _, path = line.strip().partition(" => ")
            if name.startswith(("libhwy", "libdnnl")):
                shutil.copy(path.split()[0], libs / name)


def make_models(models: pathlib.Path, lite_python: str) -> None:
    os.environ["LITE_REPEATING"] = "1"
    for net in NETS:
        if lite.ask("mge", sys.executable, "lite_mge.py", "dump", net, f"{models}/{net}.mge", threads=2) is None:
            sys.exit(f"lite_pack: {net} could not be dumped.")
        lite.ask("rivals", lite_python, "lite_onnx.py", "make", net, str(models), threads=2)
    shutil.rmtree(models / "inner", ignore_errors=True)
    for file in models.iterdir():
        if not file.name.endswith((".mge", ".onnx", ".mnn", ".ncnn.param", ".ncnn.bin", ".in", ".rows")):
            file.unlink()


def make(out: pathlib.Path, build: pathlib.Path, lite_python: str, wheels: pathlib.Path) -> None:
    """Rivals and networks that are there are left as they are."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        stage_lite(build, folder / "lite")
        pack(out / "lite.tar.xz", folder / "lite", "--x86", "--lzma2=preset=9e")
        if not (out / "packages.tar.xz").exists():
            unpack_wheels(wheels, folder / "packages")
            pack(out / "packages.tar.xz", folder / "packages", "-T0", "--x86", "--lzma2=preset=9e")
        if not (out / "models.tar.xz").exists():
            (folder / "models").mkdir()
            make_models(folder / "models", lite_python)
            pack(out / "models.tar.xz", folder / "models", "-1")
    for script in SCRIPTS:
        shutil.copy(HERE / script, out / script)


def unpacked(folder: pathlib.Path) -> str:
    """What can be unpacked side by side; the interpreter that has the packages."""
    code = "import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2], filter='fully_trusted')"
    names = ("lite", "packages", "models")
    work = [subprocess.Popen([sys.executable, "-c", code, str(HERE / f"{n}.tar.xz"), str(folder / n)]) for n in names]
    codes = [w.wait() for w in work]
    if any(codes):
        sys.exit("lite_pack: an archive could not be unpacked.")
    python = folder / "python"
    paths = f"PYTHONPATH={folder}/lite:{folder}/packages:$PYTHONPATH LD_LIBRARY_PATH={folder}/lite/megenginelite/libs"
    python.write_text(f'#!/bin/sh\n{paths} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    subprocess.run(
        [sys.executable, "-m", "compileall", "-q", "-j", "0", str(folder / "lite"), str(folder / "packages")],
        check=False,
    )
    return str(python)


def ops(folder: pathlib.Path, net: str, threads: list[int]) -> None:
    """Our ops with each number of threads: those that lose most beside threads times as fast."""
    found: dict[int, dict[str, float]] = {}
    program = folder / "lite/megenginelite/libs/load_and_run"
    program.chmod(0o755)
    code = f"import numpy, lite_nets; numpy.save({net!r}, lite_nets.read_given({net!r}, {str(folder / 'models')!r}))"
    env = {**os.environ, "LD_LIBRARY_PATH": str(program.parent), "PYTHONPATH": str(HERE)}
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, env=env)
    for count in threads:
        file = folder / "profile.json"
        command = [
            str(program),
            f"{folder}/models/{net}.mge",
            "--input",
            f"x:{folder}/{net}.npy",
            "--multithread",
            str(count),
        ]
        command += ["--iter", "20", "--warmup-iter", "10", "--profile", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        if done.returncode:
            print(done.stderr[-300:])
            return
        found[count] = by_op(json.loads(file.read_text()))
    most = max(threads)
    names = sorted(found[1], key=lambda n: found[1][n] / most - found[most].get(n, 0))
    print(f"\n{net}, us by op: " + ", ".join(f"{sum(found[n].values()):.0f} on {n}" for n in threads))
    for name in names[:14]:
        print("  " + "  ".join(f"{found[n].get(name, 0):8.1f}" for n in threads) + "  " + name)


def by_op(profile: dict[str, Any]) -> dict[str, float]:
    """Microseconds of a run; ops of one kind and size together."""
    sums: collections.Counter[str] = collections.Counter()
    for number, spent in profile["profiler"]["average"].items():
        done = profile["profiler"]["opr_footprint"].get(number)
        if done is None:
            continue
        sizes = " ".join("x".join(map(str, shape)) for shape in (*done["in_shapes"][:2], *done["out_shapes"][:1]))
        sums[f"{profile['graph_exec']['operator'][number]['type']} {sizes}"] += 1e6 * spent
    return dict(sums)


def run(threads: list[int], nets: list[str], peers: list[str], minutes: float, seconds: float) -> None:
    end = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        python = unpacked(folder)
        sys.executable = python  # ours runs where the rivals do
        print(f"unpacked; {60 * minutes - (end - time.monotonic()):.0f} s, load {os.getloadavg()[0]:.2f}", flush=True)
        seen: dict[tuple[int, str], lite.Seen] = collections.defaultdict(dict)
        rounds = 0
        while time.monotonic() < end:
            for count in reversed(threads):
                for net in nets:
                    if time.monotonic() < end:
                        lite.measure(net, f"{folder}/models", python, peers, count, seconds, seen[count, net])
            rounds += 1
            print(f"round {rounds}: {60 * minutes - (end - time.monotonic()):.0f} s", flush=True)
        for count in threads:
            lite.head(f"{count} threads, {rounds} rounds, load {os.getloadavg()[0]:.2f}")
            for net in nets:
                if "ours" in seen[count, net]:
                    lite.row(net, seen[count, net], 1.0 if count > 2 else lite.WANTED)
        for net in nets:
            ops(folder, net, threads)


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = ap.add_subparsers(dest="what", required=True)
    m = sub.add_parser("make")
    m.add_argument("folder", type=pathlib.Path)
    m.add_argument("--lite", type=pathlib.Path, required=True, help="a build folder with Lite")
    m.add_argument("--lite-python", type=lite.absolute, required=True, help="interpreter that has the rivals")
    m.add_argument("--wheels", type=pathlib.Path, required=True)
    r = sub.add_parser("run")
    r.add_argument("--threads", default=f"1,2,{os.cpu_count()}")
    r.add_argument("--only", default=",".join(NETS))
    r.add_argument("--peers", default=",".join(lite.RIVALS))
    r.add_argument("--minutes", type=float, default=6.8, help="for the tables; the ops take one more")
    r.add_argument("--seconds", type=float, default=0.4, help="that each process measures")
    a = ap.parse_args()
    if a.what == "make":
        return make(a.folder, a.lite, a.lite_python, a.wheels)
    run([int(t) for t in a.threads.split(",")], a.only.split(","), a.peers.split(","), a.minutes, a.seconds)


if __name__ == "__main__":
    main()
