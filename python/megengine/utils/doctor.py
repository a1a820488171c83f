"""Looks at the installation and the machine: what was found, what is wrong, and how to fix it.

>>> from megengine.utils.doctor import examine
>>> [f.name for f in examine()][:3]
['version', 'python', 'extension']
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

#: What the fast kernels are compiled for, best first.
_CPU_FEATURES = ("avx512_bf16", "avx512_vnni", "avx512f", "avx_vnni", "avx2", "fma", "f16c", "avx", "sse4_1")
_LIBRARIES = ("libdnnl", "libhwy", "libgomp", "libopenblas", "libmkl")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; ``problem`` and ``fix`` are empty when it is fine."""

    name: str
    found: str
    problem: str = ""
    fix: str = ""


def _version() -> Finding:
    from ..version import __version__, git_version

    return Finding("version", f"{__version__} (commit {git_version})")


def _python() -> Finding:
    found = f"{platform.python_version()} at {sys.executable}, NumPy {np.__version__}"
    return Finding("python", found)


def _extension() -> Finding:
    from ..core import _core

    path = str(_core.__file__)
    # A source tree or another installation earlier on the path is the usual reason for odd behaviour.
    here = Path(__file__).resolve().parents[1]
    if here not in Path(path).resolve().parents:
        return Finding(
            "extension",
            path,
            f"the compiled part comes from another installation than {here}.",
            "Remove one of them, or put one first in PYTHONPATH.",
        )
    built = time.strftime("%Y-%m-%d %H:%M", time.localtime(os.path.getmtime(path)))
    return Finding("extension", f"{path} (built {built}, {len(_core.op_names())} ops)")


def _loaded_libraries() -> dict[str, str]:
    """Shared libraries of interest in this process, by name."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return {}
    paths = {line.split(maxsplit=5)[5] for line in lines if line.count("/")}
    return {name: p for name in _LIBRARIES for p in sorted(paths) if os.path.basename(p).startswith(name)}


def _libraries() -> Finding:
    loaded = _loaded_libraries()
    found = ", ".join(loaded.values()) or "none"
    if sys.platform == "linux" and platform.machine() == "x86_64" and "libdnnl" not in loaded:
        return Finding(
            "libraries",
            found,
            "oneDNN is not loaded; convolutions run on slower kernels.",
            "Install the wheel, or build with -DMGE_WITH_ONEDNN=ON.",
        )
    return Finding("libraries", found)


def _cpu() -> Finding:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return Finding("cpu", platform.processor() or platform.machine())
    fields = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in text.splitlines())}
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    found = f"{fields.get('model name', platform.machine())}; {' '.join(f for f in _CPU_FEATURES if f in flags)}"
    if platform.machine() == "x86_64" and "avx2" not in flags:
        return Finding(
            "cpu",
            found,
            "no AVX2; kernels fall back to SSE and run several times slower.",
            "Use a newer machine, or let the virtual machine pass the host's CPU features on.",
        )
    return Finding("cpu", found)


def _machine() -> Finding:
    from ..core import _core

    override = os.environ.get("MGE_MACHINE")
    return Finding("machine", _core.machine_report() + (f" (MGE_MACHINE={override})" if override else ""))


def _threads() -> Finding:
    from ..core import _core

    r = _core.thread_report()
    using, allowed = r["threads"], r["cpus"]
    onednn = f"oneDNN not used: {r['onednn_unused']}" if r["onednn_unused"] else "oneDNN's among them"
    found = f"{using} ({r['from']}) for {allowed} cores ({r['cpus_from']}); "
    found += f"one team, {r['workers']} workers so far, {onednn}"
    if r["warning"]:
        return Finding("threads", found, r["warning"], f"MGE_NUM_THREADS={allowed}, or leave it unset.")
    if using > allowed:
        return Finding(
            "threads",
            found,
            "more threads than cores; they wait for each other.",
            f"MGE_NUM_THREADS={allowed}, or leave it unset.",
        )
    if r["onednn_unused"]:
        return Finding(
            "threads", found, "convolutions are slower without oneDNN.", "Install onednn-cpu-gomp==2023.2.0."
        )
    return Finding("threads", found)


def _memory() -> Finding:
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        total, free = (int(fields[k].split()[0]) / 2**20 for k in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        return Finding("memory", "unknown")
    found = f"{free:.1f} GiB free of {total:.1f} GiB"
    if free < 0.5:
        return Finding("memory", found, "less than 0.5 GiB is free.", "End other programs or use smaller batches.")
    return Finding("memory", found)


def _devices() -> Finding:
    from ..device import get_default_device, get_device_count

    counts = ", ".join(f"{kind}: {get_device_count(kind)}" for kind in ("cpu", "gpu"))
    return Finding("devices", f"{counts}; default {get_default_device()}")


def _cuda() -> Finding:
    """A machine without a GPU is fine; one with a GPU and without its libraries is not."""
    from ..core import _core

    parts = _core.cuda_components()
    if not parts:
        return Finding("cuda", "not in this build")
    if why := _core.why_no_gpu():
        return Finding("cuda", f"no gpu device: {why}")
    names = [_core.cuda_properties(i)["name"] for i in range(_core.device_count("gpu"))]
    found = f"driver {_core.cuda_driver_version()}, {', '.join(names)}; {', '.join(p for _, p, _ in parts if p)}"
    if missing := [why for _, path, why in parts if not path]:
        return Finding(
            "cuda",
            found,
            "; ".join(missing) + ".",
            "pip install nvidia-cuda-nvrtc nvidia-cublas nvidia-cudnn-cu13",
        )
    return Finding("cuda", found)


def _cache() -> Finding:
    from ..hub.hub import _get_megengine_home

    folder = _get_megengine_home()
    nearest = next(p for p in (folder, *folder.parents) if p.exists())
    if not os.access(nearest, os.W_OK | os.X_OK) or not nearest.is_dir():
        return Finding(
            "cache folder",
            str(folder),
            f"{nearest} cannot be written; downloads and measured kernels are lost.",
            "Set MGE_HOME to a folder that you may write.",
        )
    return Finding("cache folder", str(folder) + ("" if folder.exists() else " (made when first used)"))


def _temporary() -> Finding:
    try:
        with tempfile.TemporaryFile() as f:
            f.write(b"x")
    except OSError as e:
        return Finding("temporary files", tempfile.gettempdir(), str(e), "Set TMPDIR to a folder with space.")
    return Finding("temporary files", tempfile.gettempdir())


def _arithmetic() -> Finding:
    """A small product and its gradient, judged by NumPy."""
    from ..autodiff import GradManager
    from ..functional import matmul
    from ..tensor import Tensor

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((17, 17)).astype("float32") for _ in range(2))
    x = Tensor(a)
    with GradManager().attach([x]) as gm:
        y = matmul(x, Tensor(b))
        gm.backward(y.sum())
    assert x.grad is not None
    error = max(abs(y.numpy() - a @ b).max(), abs(x.grad.numpy() - b.sum(1)).max())
    if not error < 1e-3:
        return Finding(
            "arithmetic",
            f"largest error {error:.1e}",
            "a product or its gradient is wrong.",
            "Please report this output.",
        )
    return Finding("arithmetic", f"a product and its gradient agree with NumPy, largest error {error:.1e}")


def _other_copies() -> Finding:
    """Packages that shadow this one or are shadowed by it."""
    mine = Path(__file__).resolve().parents[1]
    copies = [Path(p or ".").resolve() / "megengine" for p in sys.path]
    others = sorted({str(c) for c in copies if (c / "__init__.py").exists() and c != mine})
    if others:
        return Finding(
            "other copies", ", ".join(others), f"also on the path; {mine} is used.", "Uninstall what is not wanted."
        )
    lite = importlib.util.find_spec("megenginelite")
    return Finding("other copies", "none" + ("" if lite else "; megenginelite is not installed"))


CHECKS: tuple[Callable[[], Finding], ...] = (
    _version,
    _python,
    _extension,
    _libraries,
    _cpu,
    _machine,
    _threads,
    _memory,
    _devices,
    _cuda,
    _cache,
    _temporary,
    _other_copies,
    _arithmetic,
)


def examine() -> list[Finding]:
    """Run every check; one that fails itself is a finding too."""
    findings = []
    for check in CHECKS:
        try:
            findings.append(check())
        except Exception as e:
            name = check.__name__.strip("_").replace("_", " ")
            findings.append(Finding(name, "unknown", f"{type(e).__name__}: {e}", "Please report this output."))
    return findings


def report(findings: list[Finding]) -> str:
    """The findings as text, problems and fixes last."""
    width = max(len(f.name) for f in findings)
    lines = [f"{'ok ' if not f.problem else 'BAD'} {f.name:<{width}}  {f.found}" for f in findings]
    bad = [f for f in findings if f.problem]
    for f in bad:
        lines += ["", f"{f.name}: {f.problem}", f"  fix: {f.fix}"]
    lines += ["", f"{len(bad)} problem{'s' if len(bad) != 1 else ''} found." if bad else "No problems found."]
    return "\n".join(lines)


def main() -> int:
    """Print the report; 1 when something is wrong."""
    findings = examine()
    print(report(findings))
    return 1 if any(f.problem for f in findings) else 0
