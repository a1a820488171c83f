"""Every function, method and property of ``megenginelite`` with None, texts, arrays and numbers of the wrong kind."""

from __future__ import annotations

import ctypes
import enum
import inspect
import io
import os
import random
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from _common import DATA, limit_memory

MODEL = DATA / "lite" / "net_v1.mge"
# Exceptions that say what was wrong. A SystemError, or one without a text, would be none of them.
SAID = (
    TypeError, ValueError, RuntimeError, OSError, AttributeError, LookupError, OverflowError, MemoryError,
    ctypes.ArgumentError,
)  # fmt: skip


def main(budget: int, seed: int = 0) -> dict[str, int]:
    limit_memory()
    import numpy as np

    import megenginelite as lite

    warnings.simplefilter("ignore")
    rng = random.Random(seed)
    folder = Path(tempfile.mkdtemp())
    os.chdir(folder)  # some write to folders of their own choice
    counted: Counter[str] = Counter()
    cut = folder / "cut.mge"
    cut.write_bytes(MODEL.read_bytes()[:1000])
    read_only = np.ones((2, 1, 8, 8), np.float32)
    read_only.flags.writeable = False

    def network(loaded: bool = True) -> lite.LiteNetwork:
        net = lite.LiteNetwork()
        if loaded:
            net.load(MODEL)
        return net

    def tensor() -> lite.LiteTensor:
        if rng.random() < 0.5:
            return network().get_io_tensor(rng.choice(["data", "bias", "logits", "prob"]))
        return lite.LiteTensor(lite.LiteLayout([2, 1, 8, 8], "float32"))

    def value() -> Any:
        made = rng.choice(
            [
                lambda: None,
                lambda: rng.choice(["", "data", "logits", "float32", "nope", "\udcff", "x" * 500, str(folder / "f")]),
                lambda: rng.choice([MODEL, cut, folder, Path("/dev/null/at/all")]),
                lambda: rng.choice([0, 1, 2, 3, 8, -1, 99, 2**31, 2**40, 2**64, -(2**63), True, 1.5, float("nan")]),
                lambda: rng.choice(
                    [b"", b"data", b"\xff", io.BytesIO(b"x"), io.StringIO("x"), object(), len, {}, set()]
                ),
                lambda: [rng.choice([0, 1, 2, -1, 8, 2**40, None, "x", 1.5]) for _ in range(rng.randrange(9))],
                lambda: np.ones(
                    [rng.randrange(5) for _ in range(rng.randrange(9))], rng.choice(["f4", "f8", "i8", "O", "U3"])
                ),
                lambda: rng.choice([np.ones((2, 1, 8, 8), "f4"), read_only, read_only[:, :, ::2], np.float32(2)]),
                lambda: (ctypes.c_float * rng.randrange(200))(),
                lambda: rng.choice([ctypes.c_void_p(), ctypes.c_int(3), ctypes.pointer(ctypes.c_float(1))]),
                tensor,
                network,
                lambda: lite.LiteTensor(physic_construct=False),
                lambda: lite.LiteLayout([2, 1, 8, 8], rng.choice(["float32", "int8"])),
                lambda: rng.choice([lite.LiteConfig(), lite.LiteNetworkIO(), lite.LiteOptions(), lite.LiteIO("data")]),
                lambda: rng.choice(list(lite.LiteDeviceType)),
                lambda: lambda *a: rng.choice([None, 1, "x"]),
                lambda: [tensor() for _ in range(rng.randrange(3))],
            ]
        )
        return made()

    # Its own: it also has names of ctypes, some of which read any address.
    own = [v for v in vars(lite).values() if getattr(v, "__module__", "").startswith("megenginelite")]
    classes = [c for c in own if inspect.isclass(c) and not issubclass(c, enum.Enum)]
    functions = [f for f in own if inspect.isfunction(f)]
    subjects = {
        lite.LiteNetwork: lambda: network(rng.random() < 0.8),
        lite.LiteTensor: tensor,
        lite.LiteLayout: lambda: lite.LiteLayout([2, 3], "float32"),
        lite.LiteConfig: lite.LiteConfig,
        lite.LiteNetworkIO: lite.LiteNetworkIO,
        lite.LiteIO: lambda: lite.LiteIO("data"),
        lite.LiteOptions: lite.LiteOptions,
    }
    # What ends the process, or reads memory at an address that the caller gives, on purpose.
    left_out = {"config_env"}

    def members(c: type) -> list[str]:
        return [n for n in dir(c) if not n.startswith("_") and n not in left_out]

    def wrong_call() -> None:
        kind = rng.randrange(8)
        given = [value() for _ in range(rng.randrange(4))]
        if kind == 0:
            rng.choice(classes)(*given)
        elif kind == 1 and functions:
            function = rng.choice(functions)
            if function.__name__ not in left_out:
                function(*given)
        else:
            c = rng.choice([lite.LiteNetwork, lite.LiteTensor, lite.LiteNetwork, lite.LiteTensor, *subjects])
            subject, name = subjects[c](), rng.choice(members(c))
            member = inspect.getattr_static(c, name)
            if inspect.isfunction(member) or isinstance(member, (classmethod, staticmethod)):
                getattr(subject, name)(*given)
            elif rng.random() < 0.5:
                getattr(subject, name)
            else:
                setattr(subject, name, value())
            # It is as good as before, or says why not.
            if isinstance(subject, lite.LiteNetwork):
                subject.forward()
                subject.wait()
            elif isinstance(subject, lite.LiteTensor):
                subject.to_numpy()

    for _ in range(budget):
        counted["calls"] += 1
        try:
            wrong_call()
        except SAID as e:
            counted["refused"] += 1
            assert str(e), f"a {type(e).__name__} without a text"
    return dict(counted)
