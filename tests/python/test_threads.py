"""The team of threads: none is started after a warm-up, never are there more than asked for, no bit depends on them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.core import _core

COUNTS = (2, 3, 8, 16, 64)


def program(code: str, **env: str) -> str:
    """What a fresh process says; one that hangs or fails is an error."""
    clean = {k: v for k, v in os.environ.items() if k not in ("MGE_NUM_THREADS", "OMP_NUM_THREADS", "MGE_COSTS")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, env={**clean, **env}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


NET = """
import os, pathlib, threading
import numpy as np
import megengine as mge, megengine.functional as F, megengine.module as M
from megengine.autodiff import GradManager
from megengine.core import _core
from megengine.optimizer import SGD

def tasks():
    return set(os.listdir("/proc/self/task"))

alone = tasks()

class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.convs = M.Sequential(
            M.Conv2d(3, 32, 3, 2, 1), M.BatchNorm2d(32), M.ReLU(),
            M.Conv2d(32, 64, 3, 1, 1), M.BatchNorm2d(64), M.ReLU(),
            M.Conv2d(64, 64, 3, 2, 1, groups=64), M.ReLU(),
            M.Conv2d(64, 128, 1), M.ReLU(), M.MaxPool2d(2),
        )
        self.qkv, self.norm, self.head = M.Linear(128, 384), M.LayerNorm(128), M.Linear(128, 10)

    def forward(self, x):
        y = self.convs(x)
        y = self.norm(F.flatten(y, 2).transpose(0, 2, 1))
        q, k, v = F.split(self.qkv(y), 3, axis=2)
        y = y + F.matmul(F.softmax(F.matmul(q, k, transpose_b=True), axis=-1), v)
        return self.head(y.mean(axis=1))

net = Net()
gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.01)
x = mge.Tensor(np.random.RandomState(0).randn(8, 3, 32, 32).astype("float32"))
label = mge.Tensor(np.arange(8).astype("int32"))

def step(net=net, gm=gm, opt=opt):
    with gm:
        loss = F.nn.cross_entropy(net(x), label)
        gm.backward(loss)
    opt.step().clear_grad()
    return loss.item()

def name(task):
    try:
        return pathlib.Path("/proc/self/task", task, "comm").read_text()
    except OSError:  # it has ended meanwhile
        return ""

def team():
    return sum(name(t).startswith("mge-team-") for t in tasks())
"""


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 16])
def test_no_thread_is_started_after_the_first_steps(threads: int) -> None:
    """Counted over 50 steps forwards and backwards, in the finest pieces, so that each op of them uses the team."""
    says = program(
        NET
        + """
for _ in range(3):
    step()
warm = tasks()
for i in range(50):
    _core.set_option("piece_ns", 0 if i % 2 else 2000)
    step()
    assert tasks() == warm, (i, len(warm), len(tasks()))
print(len(warm - alone), team(), _core.thread_report()["workers"])
""",
        MGE_NUM_THREADS=str(threads),
    )
    assert says.split() == [str(threads - 1)] * 3


@pytest.mark.parametrize("executor", [0, 1], ids=["inline", "queued"])
def test_callers_share_one_team(executor: int) -> None:
    """Threads of the program that compute at once, devices with a number of threads, and setting the number."""
    says = program(
        NET
        + f"""
_core.set_option("executor", {executor})
_core.set_option("piece_ns", 0)
mge.device.set_num_threads(4)
most = []
def compute():
    mine = Net()
    for _ in range(4):
        step(mine, GradManager().attach(mine.parameters()), SGD(mine.parameters(), lr=0.01))
        most.append(team())
workers = [threading.Thread(target=compute) for _ in range(3)]
[w.start() for w in workers]
[w.join() for w in workers]
print(max(most), end=" ")
with_limit = mge.Tensor(np.ones((64, 64), "float32"), device="multithread2:0")
for _ in range(5):
    (with_limit @ with_limit + 1).numpy()
    step()
print(team(), end=" ")
for n in (2, 1, 3):
    mge.device.set_num_threads(n)
    step()
    print(team(), end=" ")
"""
    )
    assert says.split() == ["3", "3", "1", "0", "2"]


def test_pytorch_and_another_openmp_in_the_process_are_left_alone() -> None:
    """Our oneDNN gets its threads from our team also when libgomp was loaded before everything else."""
    says = program(
        NET
        + """
step()
print(team(), len(tasks() - alone), _core.thread_report()["onednn_unused"] or "used")
""",
        MGE_NUM_THREADS="3",
        LD_PRELOAD="libgomp.so.1",
    )
    assert says.split() == ["2", "2", "used"]


def test_lite_beside_the_extension_has_threads_of_its_own(tmp_path: Path) -> None:
    """Both use one oneDNN, whose parallel regions go to the team of whoever called."""
    says = program(
        NET
        + f"""
import megenginelite as lite
from megengine.jit import trace
net.eval()
@trace(symbolic=True, capture_as_const=True)
def infer(x):
    return net(x)
want = infer(x).numpy()
infer.dump("{tmp_path}/net.mge", arg_names=["x"])
net.train()
network = lite.LiteNetwork()
network.threads_number = 3
network.load("{tmp_path}/net.mge")
mge.device.set_num_threads(2)
x_in = network.get_io_tensor("x")
def run():
    x_in.set_data_by_copy(x.numpy())
    network.forward(); network.wait()
    got = network.get_io_tensor(network.get_all_output_name()[0]).to_numpy()
    assert got.tobytes() == want.tobytes()
first = step()
for _ in range(5):
    run()
    step()
print(team(), _core.thread_report()["workers"])
mge.device.set_num_threads(1)
step(), run()
print(team(), _core.thread_report()["workers"])
"""
    )
    assert says.split() == ["3", "1", "2", "0"]


# ---- bits

# name: (input, what is done to it). Convolutions of each kind that has kernels of its own, products of each shape.
LAYERS: dict[str, tuple[tuple[int, ...], Callable[[], Callable[[Tensor], Tensor]]]] = {
    "3x3, many tiles": ((4, 32, 40, 40), lambda: M.Conv2d(32, 48, 3, 1, 1)),
    "3x3, few tiles": ((1, 64, 14, 14), lambda: M.Conv2d(64, 64, 3, 1, 1)),
    "3x3, 7x7 image": ((1, 256, 7, 7), lambda: M.Conv2d(256, 256, 3, 1, 1)),
    "3x3, stride 2": ((3, 32, 28, 28), lambda: M.Conv2d(32, 64, 3, 2, 1)),
    "stem": ((2, 3, 64, 64), lambda: M.Conv2d(3, 64, 7, 2, 3)),
    "one channel": ((8, 1, 28, 28), lambda: M.Conv2d(1, 6, 5, 1, 2)),
    "1x1": ((2, 64, 28, 28), lambda: M.Conv2d(64, 128, 1)),
    "1x1, deep": ((1, 512, 7, 7), lambda: M.Conv2d(512, 512, 1)),
    "1x1, batch": ((16, 128, 14, 14), lambda: M.Conv2d(128, 256, 1)),
    "depthwise": ((2, 96, 28, 28), lambda: M.Conv2d(96, 96, 3, 1, 1, groups=96)),
    "depthwise, stride 2": ((1, 144, 56, 56), lambda: M.Conv2d(144, 144, 3, 2, 1, groups=144)),
    "groups": ((2, 32, 20, 20), lambda: M.Conv2d(32, 32, 3, 1, 1, groups=4)),
    "deconvolution": ((2, 32, 14, 14), lambda: M.ConvTranspose2d(32, 16, 4, 2, 1)),
    "3-D": ((2, 8, 8, 14, 14), lambda: M.Conv3d(8, 16, 3, 1, 1)),
    "linear": ((64, 256), lambda: M.Linear(256, 512)),
    "linear, one row": ((1, 1024), lambda: M.Linear(1024, 1000)),
    "linear, 8 rows": ((8, 1024), lambda: M.Linear(1024, 1024)),
    "linear, 128 rows": ((128, 768), lambda: M.Linear(768, 1024)),
    "batched products": ((24, 64, 64), lambda: lambda x: F.matmul(x, x, transpose_b=True)),
    "long sums": ((64, 5000), lambda: lambda x: F.matmul(x, x, transpose_b=True)),
    "tall sums": ((5000, 24), lambda: lambda x: F.matmul(x, x, transpose_a=True)),
    "batch norm": ((8, 24, 28, 28), lambda: M.BatchNorm2d(24)),
    "layer norm": ((300, 256), lambda: M.LayerNorm(256)),
    "group norm": ((4, 32, 14, 14), lambda: M.GroupNorm(8, 32)),
    "softmax": ((300, 300), lambda: lambda x: F.softmax(x, axis=1)),
    "softmax down": ((30, 40, 50), lambda: lambda x: F.logsoftmax(x, axis=1)),
    "sum of all": ((700, 701), lambda: lambda x: x.sum()),
    "sum of rows": ((70, 7001), lambda: lambda x: x.sum(axis=1)),
    "sum of columns": ((7001, 70), lambda: lambda x: x.mean(axis=0)),
    "elementwise": ((500, 501), lambda: lambda x: F.gelu(x) * F.sigmoid(x) + F.exp(x * 0.1)),
    "broadcast": ((40, 50, 60), lambda: lambda x: x * x[:1] + x[:, :1, :1]),
    "transposed": ((300, 400), lambda: lambda x: F.tanh(x.transpose(1, 0)) @ x),
    "max pool": ((4, 32, 28, 28), lambda: M.MaxPool2d(3, 2, 1)),
    "average pool": ((4, 32, 28, 28), lambda: M.AvgPool2d(2)),
    "interpolate": ((2, 8, 20, 20), lambda: lambda x: F.vision.interpolate(x, scale_factor=2.0)),
    "sort": ((40, 500), lambda: lambda x: F.sort(x)[0]),
    "cumulative sums": ((40, 3000), lambda: lambda x: F.cumsum(x, axis=1)),
    "tall product": ((700, 130), lambda: M.Linear(130, 90)),
    "wide product": ((130, 610), lambda: M.Linear(610, 700)),
    "lstm": ((12, 8, 64), lambda: SequenceOfLstm(64, 96)),
    "lstm, units that fill no group": ((5, 29, 40), lambda: SequenceOfLstm(40, 33)),
    "rnn of many units": ((3, 40, 20), lambda: SequenceOfRnn(20, 530)),
    "concat and index": ((200, 300), lambda: lambda x: F.concat([x, x[::2]], axis=0)[:, 5:250:3]),
}


class SequenceOfLstm(M.LSTM):  # the sequence alone, so that it is a layer like others
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[0]


class SequenceOfRnn(M.RNN):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[0]


@pytest.fixture(params=[0, 2000], ids=["finest pieces", "usual pieces"])
def pieces(request: pytest.FixtureRequest) -> Iterator[None]:
    piece, threads = _core.get_option("piece_ns"), _core.get_num_threads()
    _core.set_option("piece_ns", request.param)
    yield
    _core.set_option("piece_ns", piece)
    _core.set_num_threads(threads)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_have_the_same_bits_for_any_number_of_threads(name: str, pieces: None) -> None:
    shape, make = LAYERS[name]
    data = np.random.default_rng(len(name)).standard_normal(shape).astype(np.float32)

    def bits() -> list[bytes]:
        mge.random.seed(3)
        layer = make()
        params = list(layer.parameters()) if isinstance(layer, M.Module) else []
        x = Tensor(data)
        with GradManager().attach([x, *params]) as gm:
            y = layer(x)
            gm.backward((y * F.sin(y)).sum())
        return [t.numpy().tobytes() for t in (y, x.grad, *(p.grad for p in params if p.grad is not None))]

    _core.set_num_threads(1)
    want = bits()
    for threads in COUNTS:
        _core.set_num_threads(threads)
        assert bits() == want, f"{threads} threads"


# ---- how many

REPORT = """
from megengine.core import _core
from megengine.device import get_num_threads
report = _core.thread_report()
assert get_num_threads() == report["threads"]
print(report["threads"], report["from"], sep=",", end=";")
"""


def test_the_number_comes_from_variables_or_the_cores_there_are() -> None:
    cores = len(os.sched_getaffinity(0))
    assert program(REPORT, OMP_NUM_THREADS="5") == "5,OMP_NUM_THREADS;"
    assert program(REPORT, OMP_NUM_THREADS="5,2") == "5,OMP_NUM_THREADS;"
    assert program(REPORT, OMP_NUM_THREADS="5", MGE_NUM_THREADS="3") == "3,MGE_NUM_THREADS;"
    threads, source = program(REPORT).rstrip(";").split(",")
    assert 1 <= int(threads) <= cores
    assert source in ("cores of the machine", "CPU affinity", "cgroup CPU quota")
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n" + textwrap.dedent(REPORT)
    assert program(code).startswith("1,")
    code += "import megengine\nmegengine.device.set_num_threads(7)\n" + textwrap.dedent(REPORT)
    assert program(code).endswith(";7,set_num_threads;")


def test_bad_values_of_the_variables_are_named() -> None:
    says = program("import megengine; megengine.device.get_num_threads()", OMP_NUM_THREADS="0")
    assert "OMP_NUM_THREADS: the number of threads must be 1..256; got '0'. It is not used." in says
    says = program("import megengine", MGE_COSTS="piece=fast")
    assert (
        "MGE_COSTS: expected piece, fma, value, byte or step = nanoseconds, separated by commas; got 'piece=fast'"
        in says
    )
    with pytest.raises(ValueError, match="piece_ns: expected nanoseconds; got -1"):
        _core.set_option("piece_ns", -1)


@pytest.mark.parametrize("bad", ["abc", "0", "-1", "1e3", "257", "2.5"])
def test_a_wrong_number_of_threads_is_an_error_at_import(bad: str) -> None:
    code = """
        try:
            import megengine
        except ValueError as e:
            print(e)
    """
    want = f"MGE_NUM_THREADS: the number of threads must be 1..256; got '{bad}'. Unset it or mend it."
    assert program(code, MGE_NUM_THREADS=bad).strip() == want


def test_the_doctor_says_where_the_number_comes_from() -> None:
    code = "from megengine.utils import doctor; f = doctor._threads(); print(f.found, f.problem, f.fix, sep='|')"
    found, problem, _ = program(code, OMP_NUM_THREADS="1").split("|")
    assert found.startswith("1 (OMP_NUM_THREADS) for ") and "one team, 0 workers so far" in found and not problem
    found, problem, fix = program(code, MGE_NUM_THREADS="200").split("|")
    assert found.startswith("200 (MGE_NUM_THREADS)") and problem.startswith("more threads than cores")
    assert fix.startswith("MGE_NUM_THREADS=")
    _, problem, _ = program(code + "\n", OMP_NUM_THREADS="x").rsplit("megengine:", 1)[0].split("|")
    assert problem == "OMP_NUM_THREADS: the number of threads must be 1..256; got 'x'. It is not used."


def test_data_workers_use_one_thread_each() -> None:
    says = program(
        NET
        + """
from megengine.data import DataLoader, SequentialSampler
from megengine.data.dataset import Dataset

class Steps(Dataset):
    def __init__(self):
        pass
    def __len__(self):
        return 4
    def __getitem__(self, i):
        _core.set_option("piece_ns", 0)
        step()
        return np.array([mge.device.get_num_threads(), len(tasks())])

step()
data = Steps()
seen = [b for b in DataLoader(data, sampler=SequentialSampler(data, batch_size=1), num_workers=2)]
print({tuple(row) for b in seen for row in b.tolist()}, mge.device.get_num_threads())
""",
        MGE_NUM_THREADS="4",
    )
    assert says.strip() == "{(1, 1)} 4"
