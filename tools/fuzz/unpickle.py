#!/usr/bin/env python3
"""Mutated checkpoints against megengine.load: whatever the bytes, it returns data or says what is wrong.

Cases are numbered and made from their number alone. They run in child processes, so that a crash, a hang or memory
without bound is a finding with a number: ``tools/fuzz/unpickle.py --case N`` runs that one, ``--bytes N`` prints it.
Beside that it is a finding when load raises anything but its own errors, imports a module, or runs code of a class.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import mmap
import os
import pickle
import pickletools
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import megengine as mge
import megengine._pickle.values  # what load imports when a file first names it
import megengine.functional as F
import megengine.module as M
from megengine.core.tensor import dtype as D
from megengine.core.tensor.qparams import QuantMode, create_qparams
from megengine.traced_module import trace_module
from megengine.traced_module._unpickle import extension

BATCH = 5000
CASE_SECONDS = 20
MEMORY = 2 << 30
CHECKPOINTS = Path(__file__).parents[2] / "tests" / "data" / "checkpoints"


class Canary(M.Module):
    """Notes when anything of it runs."""

    ran = 0

    def forward(self, x: Any) -> Any:
        return x

    def note(self, *args: Any) -> Any:
        Canary.ran += 1
        return self

    __eq__ = __call__ = extend = append = update = add = __setitem__ = note  # type: ignore[assignment]
    __hash__ = __len__ = __bool__ = __iter__ = __repr__ = __getitem__ = note  # type: ignore[assignment]


class Net(M.Module):
    """Something of everything that a module may hold."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = M.Linear(2, 2)
        self.act = F.relu
        self.parts = [M.ReLU(), {"bn": M.BatchNorm2d(1)}]
        self.__dict__["me"] = self

    def forward(self, x: Any) -> Any:
        return self.act(self.fc(x))


# ---- what is mutated


def originals() -> list[Any]:
    """One object of each kind that files hold."""
    quantised = mge.Tensor([1.0])
    quantised.qparams = create_qparams(QuantMode.SYMMERTIC, "qint8", mge.Tensor(0.5), None)
    ring: list[Any] = [1]
    ring.append({"ring": ring, "t": (ring,)})
    return [
        {"w": mge.Tensor([[1.0, 2.0]]), "p": mge.Parameter([1, 2]), "q": quantised},
        [np.arange(6.0).reshape(2, 3), np.array(True), np.arange(4, dtype=">i2"), np.zeros((0, 3))],
        [np.array(["ab", "c"]), np.array([b"x"]), np.array(["2020"], "M8[s]"), np.array([{1: [2]}, None], object)],
        [np.arange(3.0).astype(D.bfloat16), np.array([1, -3]).astype(D.intb2), np.ones(2, "int8").astype(D.qint8(0.5))],
        [np.float32(1.5), np.int8(3), np.bool_(True), np.str_("x"), np.float64, np.dtype("i4"), np.datetime64(3, "s")],
        [argparse.Namespace(a=[1], b=Path("a/b")), datetime(2020, 1, 2), timedelta(1), Decimal("1.5"), Fraction(1, 3)],
        [None, True, 1, -1, 300, 70000, 2**40, 10**30, 1.5, 1j, "x", "y" * 300, b"z", b"w" * 300, bytearray(b"v")],
        [(), (1,), (1, 2, 3, 4), [], {}, set(), {1, "a"}, frozenset([1, (2,)]), slice(1, 2), range(3), {(1, 2): 3}],
        [OrderedDict(a=1), defaultdict(list, a=[1]), Counter("aab"), deque([1], 3), ring, Canary(), [Canary()]],
        Net(),
        trace_module(Net(), mge.Tensor([[1.0, 2.0]])),
    ]


def unframed(data: bytes) -> bytes:
    """Without frames, whose lengths would make most mutations end at once."""
    out, at = bytearray(), 0
    for op, _, pos in pickletools.genops(data):
        if op.name == "FRAME":
            out += data[at:pos]
            at = pos + 9
    return bytes(out + data[at:])


def seeds() -> list[bytes]:
    extension()  # imports what files of traced modules name
    found = [(CHECKPOINTS / name).read_bytes() for name in ("modules.pkl", "nested_quantized.pkl")]
    found += [(CHECKPOINTS.parent / "traced_module" / f"{name}.tm").read_bytes() for name in ("arguments", "qat")]
    for protocol in (0, 2, 4, 5):
        for obj in originals():
            ours = io.BytesIO()
            try:
                mge.save(obj, ours, pickle_protocol=protocol)
                found += [ours.getvalue(), pickle.dumps(obj, protocol)]
            except (TypeError, pickle.PicklingError):  # slots and protocols 0 and 1
                pass
    return [s for data in found for s in ([data, unframed(data)] if data[:2] >= b"\x80\4" else [data])]


NAMES = (
    b"cnumpy\nndarray\n",
    b"cnumpy\ndtype\n",
    b"cnumpy.core.multiarray\n_reconstruct\n",
    b"cnumpy._core.multiarray\nscalar\n",
    b"cnumpy.core.numeric\n_frombuffer\n",
    b"cnumpy\nint8\n",
    b"cmegengine.tensor\nTensor\n",
    b"cmegengine.core.tensor.qparams\nQParams\n",
    b"cmegengine.core.tensor.dtype\nQuantDtypeMeta\n",
    b"cmegengine.module.identity\nIdentity\n",
    b"c__main__\nCanary\n",
    b"ccollections\nOrderedDict\n",
    b"ccollections\ndefaultdict\n",
    b"ccollections\ndeque\n",
    b"cbuiltins\nset\n",
    b"cbuiltins\nbytearray\n",
    b"cbuiltins\nslice\n",
    b"c_codecs\nencode\n",
    b"cos\nsystem\n",
    b"ctyping\ncast\n",
    b"cinspect\nFullArgSpec\n",
    b"cmegengine.traced_module.traced_module\nTracedModule\n",
    b"cmegengine.traced_module.traced_module\nInternalGraph\n",
    b"cmegengine.traced_module.serialization\n_ModuleState\n",
    b"cmegengine.traced_module.expr\nCallMethod\n",
    b"cmegengine.traced_module.node\nTensorNode\n",
    b"cmegengine.traced_module.pytree\nTreeDef\n",
)
#: Opcodes that push one value.
VALUES = (
    *NAMES, b"N", b"\x88", b"K\0", b"K\1", b"K\x08", b"M\xff\xff", b"J\xff\xff\xff\xff",
    b"\x8a\x08" + b"\xff" * 7 + b"\x7f", b"G\x7f\xf8\0\0\0\0\0\0", b"C\0", b"C\x08abcdefgh", b"\x8c\1x", b"\x8c\0",
    b"\x8c\2O8", b"\x8c\2V8", b"\x8c\3U99", b"\x8c\1>", b"\x8c\4cpu0", b"\x8c\4gpu9", b"\x8c\5dtype", b")", b"]",
    b"}", b"\x8f", b"K\0\x85", b"K\1K\2\x86", b"]K\1a", b"}K\1K\2s", b"h\0", b"h\1", b"h\2", b"h\5", b"h\x10",
    b"I1\n", b"L9L\n", b"S'x'\n", b"Vx\n", b"F1\n", b"c__main__\nCanary\n)\x81",
    b"cnumpy\nndarray\nK\0\x85\x8c\1b\x86R", b"cmegengine.tensor\nTensor\n)R", b"cnumpy\ndtype\n\x8c\2O8\x85R",
)  # fmt: skip
#: A few opcodes that go together.
SNIPPETS = (
    *VALUES, b"K\0\x85\x8c\1b\x86R", b"cnumpy\nndarray\nK\0\x85C\1b\x87R",
    b"\x8c\2i4\x89\x88\x87R(K\3\x8c\1<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb",
    b"\x8c\2O8\x89\x88\x87R(K\3\x8c\1|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x3ftb",
    b"(K\1K\2\x85h\0\x89C\x08abcdefghtb", b")R", b")\x81", b"}b", b"N}\x86b", b"]\x94", b"}\x94", b"\x8f\x94", b"(",
    b"t", b"\x85", b"\x86", b"\x87", b"l", b"d", b"a", b"e", b"s", b"u", b"\x90", b"\x91", b"R", b"\x81", b"b", b"0",
    b"1", b"2", b"\x94", b"B\xff\xff\xff\x7f", b"\x8e" + b"\xff" * 7 + b"\x7f", b"\x95" + struct.pack("<Q", 40),
    b"q\0", b"q\1", b"r\xff\xff\xff\xff", b"j\0\0\0\0",
)  # fmt: skip
NUMBERS = (0, 1, 2, 7, 8, 127, 128, 255, 256, 65535, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1)


def cut_at(rng: random.Random, data: bytes, places: list[int]) -> tuple[int, int]:
    """Two places in order, near each other, between opcodes."""
    i = rng.randrange(len(places))
    j = min(len(places) - 1, i + rng.randrange(1, 12))
    return places[i], places[j]


class Maker:
    """Makes the case of a number."""

    def __init__(self) -> None:
        self.seeds = seeds()
        self.places, self.values = [], []
        for s in self.seeds:
            ops = [(op, pos) for op, _, pos in pickletools.genops(s)]
            ends = [pos for _, pos in ops[1:]] + [len(s)]
            self.places.append([pos for _, pos in ops])
            # opcodes that push one value and take none
            pushes = [not op.stack_before and len(op.stack_after) == 1 and op.name != "MARK" for op, _ in ops]
            self.values.append([(pos, end) for (_, pos), end, push in zip(ops, ends, pushes) if push])

    def make(self, number: int) -> bytes:
        rng = random.Random(number)
        if rng.random() < 0.15:
            return b"\x80\4" + b"".join(rng.choice(SNIPPETS) for _ in range(rng.randrange(3, 50))) + b"."
        which = rng.randrange(len(self.seeds))
        data, places = self.seeds[which], self.places[which]
        if rng.random() < 0.6:
            return self.replace(rng, data, self.values[which])
        for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
            data = rng.choice(self.ways)(self, rng, data, [p for p in places if p < len(data)] or [0])
        return data

    def replace(self, rng: random.Random, data: bytes, values: list[tuple[int, int]]) -> bytes:
        """Other values where values are: what is wrong is their kind, not the order of the opcodes."""
        for begin, end in sorted(rng.sample(values, min(len(values), rng.choice((1, 1, 1, 2, 3)))), reverse=True):
            if rng.random() < 0.4:
                which = rng.randrange(len(self.seeds))
                a, b = rng.choice(self.values[which])
                new = self.seeds[which][a:b]
            else:
                new = rng.choice(VALUES)
            data = data[:begin] + new + data[end:]
        return data

    def flip(self, rng: random.Random, data: bytes, places: list[int]) -> bytes:
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            if changed:
                changed[rng.randrange(len(changed))] = rng.randrange(256)
        return bytes(changed)

    def flip_opcode(self, rng: random.Random, data: bytes, places: list[int]) -> bytes:
        at = rng.choice(places)
        return data[:at] + rng.choice(pickletools.opcodes).code.encode("latin1") + data[at + 1 :]

    def number(self, rng: random.Random, data: bytes, places: list[int]) -> bytes:
        at, size = rng.choice(places) + 1, rng.choice((1, 2, 4, 8))
        value = rng.choice(NUMBERS) & ((1 << 8 * size) - 1)
        return data[:at] + value.to_bytes(size, rng.choice(("little", "big"))) + data[at + size :]

    def cut(self, rng: random.Random, data: bytes, places: list[int]) -> bytes:
        return data[: rng.randrange(len(data) + 1)]

    def drop(self, rng: random.Random, data: bytes, places: list[int]) -> bytes:
        a, b = cut_at(rng, data, places)
        return data[:a] + data[b:]

    def repeat(self, rng: random.Random, data: bytes, places: list[int]) -> bytes:
        a, b = cut_at(rng, data, places)
        return data[:b] + data[a:b] * rng.choice((1, 1, 2, 50)) + data[b:]

    def insert(self, rng: random.Random, data: bytes, places: list[int]) -> bytes:
        at = rng.choice(places)
        return data[:at] + b"".join(rng.choice(SNIPPETS) for _ in range(rng.randrange(1, 5))) + data[at:]

    def splice(self, rng: random.Random, data: bytes, places: list[int]) -> bytes:
        which = rng.randrange(len(self.seeds))
        a, b = cut_at(rng, self.seeds[which], self.places[which])
        at = rng.choice(places)
        return data[:at] + self.seeds[which][a:b] + data[at + rng.choice((0, 0, b - a)) :]

    ways: tuple[Callable[[Maker, random.Random, bytes, list[int]], bytes], ...] = (
        flip, flip_opcode, number, cut, drop, repeat, insert, splice,
    )  # fmt: skip


# ---- what is done with one case


def small(obj: Any, limit: int = 2000) -> bool:
    """Whether everything in it can be visited; a file may hold one list in another a million times."""
    todo, left = [obj], limit
    while todo and left:
        left -= 1
        x = todo.pop()
        if isinstance(x, dict):
            todo += [*x, *x.values()][:left]
        elif isinstance(x, (list, tuple, set, frozenset, deque)):
            todo += list(x)[:left]
        elif isinstance(x, np.ndarray) and x.dtype == object:
            todo += list(x.flat)[:left]
        elif isinstance(x, M.Module):
            todo += list(vars(x).values())[:left]
    return not todo


def use(obj: Any) -> None:
    """What a program does with what it has loaded; Python's own exceptions are fine."""
    ways = (repr, str, copy.deepcopy, pickle.dumps, hash, lambda x: x == x, np.asarray, mge.Tensor)
    arrays = (repr, lambda a: a.tolist(), lambda a: a.sum(), lambda a: a[a == a], lambda a: a.astype(float))
    parts = list(obj.values()) if isinstance(obj, dict) else list(obj) if isinstance(obj, (list, tuple)) else [obj]
    small_arrays = [x for x in parts[:50] if isinstance(x, (np.ndarray, mge.Tensor)) and x.size < 10_000]
    for x, things in ((obj, ways), *((x, arrays) for x in small_arrays)):
        for f in things:
            try:
                f(x)
            except (SystemError, MemoryError):
                raise
            except Exception:
                pass


def run(data: bytes) -> str:
    """How it ended: loaded, refused, or a finding that begins with a ``!``."""
    modules = set(sys.modules)
    Canary.ran = 0
    obj, how = None, "refused"
    try:
        obj = mge.load(io.BytesIO(data))
        how = "loaded"
    except pickle.UnpicklingError:
        pass
    except RecursionError as e:
        return f"! load raised {e!r}"
    except RuntimeError:  # the engine, about a device or a format
        pass
    except BaseException as e:
        return f"! load raised {type(e).__name__}: {e}"
    if Canary.ran:
        return "! code of a class ran"
    if set(sys.modules) - modules:
        return f"! imported {sorted(set(sys.modules) - modules)}"
    if how == "loaded" and small(obj):
        try:
            use(obj)
        except BaseException as e:
            return f"! using it raised {type(e).__name__}: {e}"
    return how


# ---- children


def child(first: int, count: int, progress: str) -> None:
    """Run cases, noting each one's number before it; one line for each finding, and a line of counts."""
    make = Maker()
    for data in make.seeds:  # whatever is imported or allocated once
        assert run(data)[0] != "!" or b"Canary" in data, run(data)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    counts: Counter[str] = Counter()
    with open(progress, "r+b") as f, mmap.mmap(f.fileno(), 8) as at:
        for number in range(first, first + count):
            at[:8] = struct.pack("<Q", number)
            signal.alarm(CASE_SECONDS)
            how = run(make.make(number))
            signal.alarm(0)
            counts["finding" if how[0] == "!" else how] += 1
            if how[0] == "!":
                print(f"case {number}: {how[2:]}", flush=True)
        at[:8] = struct.pack("<Q", first + count)
    print("counts", *(f"{k}={v}" for k, v in counts.items()), flush=True)


def batch(first: int, count: int) -> tuple[int, Counter[str], list[str]]:
    """Run cases in a child: the number to go on with, counts, findings."""
    with tempfile.NamedTemporaryFile() as progress:
        progress.write(bytes(8))
        progress.flush()
        command = [sys.executable, __file__, "--child", str(first), str(count), progress.name]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "MGE_NUM_THREADS": "1"})
        (at,) = struct.unpack("<Q", Path(progress.name).read_bytes())
    counts: Counter[str] = Counter()
    findings = []
    for line in done.stdout.splitlines():
        if line.startswith("counts"):
            counts.update({k: int(v) for k, v in (item.split("=") for item in line.split()[1:])})
        elif line.startswith("case"):
            findings.append(line)
    if done.returncode:
        if at < first:
            raise RuntimeError(f"the child did not start:\n{done.stderr}")
        ended = signal.Signals(-done.returncode).name if done.returncode < 0 else f"status {done.returncode}"
        findings.append(f"case {at}: the process ended with {ended}: {done.stderr.strip()[-300:]}")
        counts.update({"finding": 1, "lost": at - first - sum(counts.values())})
        return at + 1, counts, findings
    return first + count, counts, findings


def attack(budget: int, first: int) -> tuple[Counter[str], list[str]]:
    """Run that many cases: what became of them, and the findings."""
    begin, at = time.monotonic(), first
    counts: Counter[str] = Counter()
    findings: list[str] = []
    while at < first + budget and len(findings) < 100:
        at, some, found = batch(at, min(BATCH, first + budget - at))
        counts += some
        findings += found
        for line in found:
            print(line, flush=True)
    what = ", ".join(f"{counts[k]} {k}" for k in ("loaded", "refused"))
    seconds = time.monotonic() - begin
    print(f"unpickle: {at - first} mutated checkpoints in {seconds:.0f} s: {what}, {len(findings)} findings")
    return counts, findings


def main(budget: int, seed: int = 0) -> dict[str, int]:
    counts, findings = attack(budget, seed * 1_000_000)
    if findings:
        raise RuntimeError(f"{len(findings)} findings; {Path(__file__).name} --case N runs one of them again")
    return dict(counts)


def command_line() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("budget", nargs="?", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, help="run one, in this process")
    parser.add_argument("--bytes", type=int, help="print the bytes of one")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(int(args.child[0]), int(args.child[1]), args.child[2])
        return 0
    if args.bytes is not None:
        data = Maker().make(args.bytes)
        print(data)
        with contextlib.suppress(Exception):  # most are no pickles
            pickletools.dis(data)
        return 0
    if args.case is not None:
        print(run(Maker().make(args.case)))
        return 0
    return min(1, len(attack(args.budget, args.first)[1]))


if __name__ == "__main__":
    sys.exit(command_line())
