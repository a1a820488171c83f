"""A model traced and dumped by megengine gives the same bits in every way to run it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megenginelite as lite
from megengine.jit import trace


class Net(M.Module):
    """Convolutions, batch norm, a residual, flatten, linear: what a LeNet or a small ResNet needs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = M.Conv2d(1, 8, 3, padding=1)
        self.bn = M.BatchNorm2d(8)
        self.conv2 = M.Conv2d(8, 8, 3, padding=1)
        self.pool = M.MaxPool2d(2)
        self.fc = M.Linear(128, 10)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = F.relu(self.bn(self.conv1(x)))
        x = F.relu(x + self.conv2(x))
        return self.fc(F.flatten(self.pool(x), 1))


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, np.ndarray]:
    mge.random.seed(1)
    net = Net()
    images = np.random.RandomState(2).rand(4, 1, 8, 8).astype("float32")
    net.train()
    net(mge.tensor(images * 3 - 1))  # statistics that are not the initial ones
    net.eval()
    eager = net(mge.tensor(images)).numpy()

    @trace(symbolic=True, capture_as_const=True)
    def infer(x: mge.Tensor) -> mge.Tensor:
        return net(x)

    assert infer(mge.tensor(images)).numpy().tobytes() == eager.tobytes()
    path = tmp_path_factory.mktemp("model") / "net.mge"
    infer.dump(path, arg_names=["data"], output_names=["logits"])
    return path, images, eager


def run(network: lite.LiteNetwork, images: np.ndarray) -> np.ndarray:
    network.get_io_tensor("data").set_data_by_copy(images)
    network.forward()
    network.wait()
    return network.get_io_tensor("logits").to_numpy()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("level", [0, 2])
def test_lite_gives_the_bits_of_eager(case: tuple[Path, np.ndarray, np.ndarray], threads: int, level: int) -> None:
    path, images, eager = case
    option = lite.LiteOptions()
    option.graph_opt_level = level
    network = lite.LiteNetwork(lite.LiteConfig(option=option))
    network.threads_number = threads
    network.load(path)
    assert run(network, images).tobytes() == eager.tobytes()


def test_other_batch_sizes(case: tuple[Path, np.ndarray, np.ndarray]) -> None:
    path, images, eager = case
    network = lite.LiteNetwork()
    network.load(path)
    for rows in (slice(0, 1), slice(1, 4), slice(0, 4)):
        np.testing.assert_allclose(run(network, images[rows]), eager[rows], rtol=1e-5, atol=1e-6)
    assert run(network, np.concatenate([images] * 5)).shape == (20, 10)


def test_errors_name_the_line_of_this_file(case: tuple[Path, np.ndarray, np.ndarray]) -> None:
    path, images, _ = case
    network = lite.LiteNetwork()
    network.load(path)
    with pytest.raises(RuntimeError, match=r"matmul(.|\n)*test_lite_dump\.py:\d+"):
        run(network, np.zeros((1, 1, 16, 16), "float32"))
    with pytest.raises(RuntimeError, match=r"conv2d: input has 3 channels(.|\n)*test_lite_dump\.py:\d+"):
        run(network, np.zeros((1, 3, 8, 8), "float32"))
    assert run(network, images).shape == (4, 10)


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (lambda x: {"boxes": [x, x + 1], "score": x}, "a dict whose 'boxes' is a list"),
        (lambda x: {"boxes": {"a": x}}, "a dict whose 'boxes' is a dict"),
        (lambda x: {"y": x, "count": 3}, "a dict whose 'count' is a int"),
        (lambda x: {1: x}, "a dict whose 1 is named by a int"),
    ],
)
def test_a_dict_of_other_things_than_tensors_is_refused(result, says: str, tmp_path: Path) -> None:
    f = trace(lambda x: result(x * 2), capture_as_const=True)
    f(mge.tensor([1.0]))
    with pytest.raises(TypeError) as error:
        f.dump(str(tmp_path / "m.mge"))
    assert f"dump: the traced function returns {says}; an output of a model file is one tensor" in str(error.value)
    assert "Return Dict[str, Tensor], or a list of tensors" in str(error.value) and not (tmp_path / "m.mge").exists()


def test_a_dict_of_tensors_names_the_outputs(tmp_path: Path) -> None:
    f = trace(lambda x: {"b": x + 1, "a": x * 2}, capture_as_const=True)
    f(mge.tensor([1.0]))
    assert sorted(f.dump(str(tmp_path / "m.mge")).outputs) == ["a", "b"]


def convolutions(path: Path, x: np.ndarray) -> tuple[np.ndarray, list[tuple[bool, bool]]]:
    """The result, and of each convolution whether it takes a bias and a scale."""
    net = lite.LiteNetwork()
    profile = path.with_suffix(".json")
    net.enable_profile_performance(str(profile))
    net.load(str(path))
    net.get_io_tensor("x").set_data_by_copy(x)
    net.forward()
    net.wait()
    y = net.get_io_tensor("y").to_numpy()
    del net
    ops = json.loads(profile.read_text())["graph_exec"]["operator"].values()
    attrs = [o["extra"]["attrs"] for o in ops if o["type"] == "conv2d_fused"]
    return y, [(a["has_bias"], a["has_scale"]) for a in attrs]


def test_batch_norms_go_into_the_weights_where_the_dump_says_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((1, 4, 6, 6)).astype("float32")
    weights = [rng.standard_normal(s).astype("float32") for s in ((8, 4, 3, 3), (8, 1, 1, 3, 3), (8, 8, 1, 1))]
    stats = [rng.uniform(0.5, 2, (1, 8, 1, 1)).astype("float32") for _ in range(4)]
    kept = [mge.Parameter(w) for w in weights]
    mean, var, scale, shift = (mge.Parameter(s) for s in stats)

    @trace(symbolic=True, capture_as_const=True)
    def infer(x: mge.Tensor) -> mge.Tensor:
        for w in kept:
            x = F.conv2d(x, w, padding=w.shape[-1] // 2, groups=w.shape[0] if w.ndim == 5 else 1)
            x = F.relu(F.nn.batch_norm(x, mean, var, scale, shift, training=False))
        return x

    eager = infer(mge.tensor(x)).numpy()
    infer.dump(tmp_path / "plain.mge", arg_names=["x"], output_names=["y"])
    infer.dump(tmp_path / "folded.mge", arg_names=["x"], output_names=["y"], rewrites=["fold_batch_norm"])
    plain, ops = convolutions(tmp_path / "plain.mge", x)
    assert plain.tobytes() == eager.tobytes() and ops == [(False, True)] * 3
    folded, ops = convolutions(tmp_path / "folded.mge", x)
    assert ops == [(True, False)] * 3
    assert np.abs(folded - eager).max() <= 1e-5 * np.abs(eager).max()
