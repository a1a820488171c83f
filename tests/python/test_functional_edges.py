"""Edges of the functional API that other libraries' own test data reach: NumPy in float64 is the judge."""

from __future__ import annotations

import io

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import Tensor, tensor
from megengine.autodiff import GradManager
from megengine.core import _core
from megengine.core._inference import GraphInference
from megengine.jit import trace


def gradients(fn, *arrays):
    """Of sum(fn): one array for each input, in float64."""
    xs = [Tensor(a, dtype="float64") for a in arrays]
    gm = GradManager().attach(xs)
    with gm:
        gm.backward(fn(*xs).sum())
    return [x.grad.numpy() for x in xs]


def test_gradient_of_logaddexp_where_log_2_is_lost() -> None:
    """exp(x - logaddexp(x, x)) is 1 where x is so large that adding log 2 changes nothing; the gradient is 1/2."""
    x, y = np.array([1e20, -1e20, 1e17, 3.0, -np.inf, 700.0]), np.array([1e20, -1e20, 0.0, 2.5, 1.0, -700.0])
    dx, dy = gradients(F.logaddexp, x, y)
    want = np.array([0.5, 0.5, 1.0, 1 / (1 + np.exp(-0.5)), 0.0, 1.0])
    np.testing.assert_allclose(dx, want, rtol=1e-12)
    np.testing.assert_allclose(dy, 1 - want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("symbolic", (None, False, True))
def test_split_into_as_many_parts_as_a_size_says(symbolic: bool | None) -> None:
    """A 0-d tensor, such as a size read in a trace, is a number of parts, not one place to cut at."""

    def rows(x: Tensor) -> list[Tensor]:
        return list(F.split(x, x.shape[0]))

    fn = rows if symbolic is None else trace(symbolic=symbolic)(rows)
    x = np.arange(6.0, dtype="float32").reshape(3, 2)
    for _ in range(3):
        assert [y.tolist() for y in fn(tensor(x))] == [[[0, 1]], [[2, 3]], [[4, 5]]]
    assert [y.tolist() for y in F.split(tensor(x), tensor(2))] == [[[0, 1], [2, 3]], [[4, 5]]]
    assert [y.tolist() for y in F.split(tensor(x), tensor([2]))] == [[[0, 1], [2, 3]], [[4, 5]]]  # a place to cut at


def test_scalars_where_vectors_are_expected() -> None:
    grid = F.meshgrid(tensor(3.0), tensor([1.0, 2.0]))
    want = np.meshgrid(3.0, [1.0, 2.0])
    for got, ref in zip(grid, want, strict=True):
        assert got.shape == ref.shape and np.array_equal(got.numpy(), ref)
    with pytest.raises(ValueError, match=r"meshgrid: needs vectors; got shapes \[\(2, 2\)\]"):
        F.meshgrid(F.ones((2, 2)))
    y = F.logsoftmax(tensor(3.0), 0)
    assert y.shape == F.softmax(tensor(3.0), 0).shape == () and y.item() == 0
    with pytest.raises(ValueError, match="logsoftmax"):
        F.logsoftmax(F.ones((2, 2)), 2)


def test_ranges_are_axes_and_shapes() -> None:
    x = np.arange(24.0, dtype="float32").reshape(2, 3, 4)
    for got, want in (
        (F.transpose(tensor(x), range(2, -1, -1)), x.transpose()),
        (tensor(x).transpose(range(3)), x),
        (F.sum(tensor(x), range(2)), x.sum((0, 1))),
        (F.ones(range(2, 4)), np.ones((2, 3))),
    ):
        assert got.shape == want.shape and np.array_equal(got.numpy(), want)


def test_concat_and_stack_take_any_iterable() -> None:
    x = np.arange(24.0, dtype="float32").reshape(2, 3, 4)
    for given in (x, tensor(x), (row for row in tensor(x)), list(x)):
        got = F.concat(given, 1)
        assert got.shape == (3, 8) and np.array_equal(got.numpy(), np.concatenate(x, 1))
    assert np.array_equal(F.stack(tensor(x), 2).numpy(), np.stack(x, 2))
    for fn in (F.concat, F.stack):
        with pytest.raises(TypeError, match=rf"{fn.__name__}: tensors go into one list, F.{fn.__name__}\(\[x, y\]\)"):
            fn(tensor(x), tensor(x))


def test_reversed() -> None:
    assert [y.tolist() for y in reversed(tensor([[1, 2], [3, 4]]))] == [[3, 4], [1, 2]]
    with pytest.raises(TypeError):
        reversed(tensor(1.0))


@pytest.mark.parametrize("dtype", ("uint8", "int8"))
@pytest.mark.parametrize("mode", ("nearest", "bilinear", "bicubic"))
def test_interpolate_of_bytes_gives_bytes(mode: str, dtype: str) -> None:
    """As in MegEngine: rounded to the nearest, and kept within the dtype where bicubic overshoots."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.random.RandomState(0).randint(low, high + 1, (2, 3, 7, 5)).astype(dtype)
    x[0, 0, :3, :3] = high
    wide = F.vision.interpolate(tensor(x.astype("float32")), (11, 9), mode=mode).numpy()
    got = F.vision.interpolate(tensor(x), (11, 9), mode=mode).numpy()
    assert got.dtype == dtype
    assert np.array_equal(got, np.clip(np.sign(wide) * np.floor(np.abs(wide) + 0.5), low, high))
    if mode == "nearest":
        rows, columns = np.arange(11) * 7 // 11, np.arange(9) * 5 // 9
        assert np.array_equal(got, x[:, :, rows][:, :, :, columns])
    fn = trace(symbolic=True, capture_as_const=True)(lambda x: F.vision.interpolate(x, (11, 9), mode=mode))
    assert np.array_equal(fn(tensor(x)).numpy(), got)
    file = io.BytesIO()
    fn.dump(file, arg_names=["x"], output_names=["y"])
    file.seek(0)
    assert np.array_equal(GraphInference(file).run(inp_dict={"x": x})["y"], got)


def test_nearest_keeps_the_sign_of_zero() -> None:
    got = F.vision.interpolate(tensor(np.full((1, 1, 2, 2), -0.0, "float32")), (3, 4), mode="nearest").numpy()
    assert np.signbit(got).all()


NUMBERS = (
    (5,), (0,), (-3,), (1, 7, 2), (7, 1, -2), (7, 1), (1, 7, -1), (2**24 - 2, 2**24 + 2), (-(2**24) - 3, -(2**24), 1),
    (0.5, 3), (0, 1, 0.1), (5, 0, -0.5), (-0.9, 2.1, 2.0),
)  # fmt: skip


@pytest.mark.parametrize("dtype", ("float32", "int32", "int64", "float64"))
@pytest.mark.parametrize("args", NUMBERS, ids=str)
def test_arange(args: tuple[float, ...], dtype: str) -> None:
    first, last, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    want = (first + step * np.arange(max(0, int(np.ceil((last - first) / step))))).astype(dtype)
    got = F.arange(*args, dtype=dtype)
    assert got.dtype == dtype and np.array_equal(got.numpy(), want)


@pytest.mark.parametrize("mode", ("reflect", "edge"))
@pytest.mark.parametrize("shape", ((3, 5, 40, 33), (17, 9), (2, 2, 2), (40, 4), (33,)), ids=str)
def test_pad_moves_runs(shape: tuple[int, ...], mode: str) -> None:
    """The index of a padded axis is mostly one run, which is moved at once; a short axis is all borders."""
    x = np.random.RandomState(0).randn(*shape).astype("float32")
    widths = [(min(n - 1, 2), min(n - 1, 3)) for n in shape]
    assert np.array_equal(F.pad(tensor(x), widths, mode).numpy(), np.pad(x, widths, mode))


@pytest.mark.parametrize("dtype", ("float32", "float64", "float16", "uint8"))
@pytest.mark.parametrize("count", (40, 7, 700))
def test_take_by_runs_on_the_last_axis(count: int, dtype: str) -> None:
    x = np.arange(33 * 20).reshape(33, 20).astype(dtype)
    rng = np.random.RandomState(count)
    places = np.concatenate([np.arange(start, start + 5) % 20 for start in rng.randint(-20, 15, -(-count // 5))])[
        :count
    ]
    assert np.array_equal(tensor(x)[:, tensor(places.astype("int32"))].numpy(), x[:, places])


@pytest.mark.parametrize("n", (0, 1, 2, 3, 1000, 1001))
def test_permutation_is_what_it_was(n: int) -> None:
    """Both halves of a block of random bits are used: the draws of a seed have not changed."""
    got = mge.random.RNG(seed=7).permutation(n).numpy()
    assert np.array_equal(np.sort(got), np.arange(n))
    if n == 3:
        assert got.tolist() == PERMUTATION_OF_3
    if n == 1000:
        assert got[:6].tolist() == PERMUTATION_OF_1000


PERMUTATION_OF_3 = [2, 0, 1]
PERMUTATION_OF_1000 = [729, 942, 123, 469, 399, 349]


def test_range_check_of_probabilities_at_its_edges() -> None:
    """A bound that float32 does not hold is compared as it is, not as the float beside it."""
    for label in (-1e-4, 1 + 1e-4):
        inside, outside = np.float32(label), np.float32(label)
        while not -1e-4 <= float(inside) <= 1 + 1e-4:
            inside = np.nextafter(inside, np.float32(0.5))
        while -1e-4 <= float(outside) <= 1 + 1e-4:
            outside = np.nextafter(outside, np.float32(2 * label))
        F.nn.binary_cross_entropy(F.zeros(3), tensor(np.array([0, inside, 1], "float32")))
        with pytest.raises(ValueError, match="label must lie in .* at position 1"):
            F.nn.binary_cross_entropy(F.zeros(3), tensor(np.array([0, outside, 1], "float32")))


@pytest.mark.parametrize("stride, padding, dilation, groups", ((1, 1, 1, 1), (2, 0, 1, 2), (1, 3, 2, 4)))
def test_conv1d_and_its_gradients(stride: int, padding: int, dilation: int, groups: int) -> None:
    rng = np.random.RandomState(0)
    x, w = rng.randn(2, 4, 11), rng.randn(groups, 8 // groups, 4 // groups, 3)
    length = (11 + 2 * padding - 2 * dilation - 1) // stride + 1
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding))).reshape(2, groups, 4 // groups, -1)
    taps = [padded[..., k * dilation :][..., : (length - 1) * stride + 1 : stride] for k in range(3)]
    want = sum(np.einsum("ngcl,goc->ngol", t, w[..., k]) for k, t in enumerate(taps)).reshape(2, 8, length)
    given = w if groups > 1 else w[0]

    def fn(x: Tensor, w: Tensor) -> Tensor:
        return F.conv1d(x, w, None, stride, padding, dilation, groups)

    np.testing.assert_allclose(fn(Tensor(x, "float64"), Tensor(given, "float64")).numpy(), want, atol=1e-12)
    weight = rng.randn(*want.shape)  # of the elements, so that their gradients differ
    dx, dw = gradients(lambda x, w: fn(x, w) * Tensor(weight, "float64"), x, given)
    dy = weight.reshape(2, groups, 8 // groups, length)
    want_dw = np.stack([np.einsum("ngcl,ngol->goc", t, dy) for t in taps], -1)
    np.testing.assert_allclose(dw.reshape(want_dw.shape), want_dw, atol=1e-12)
    want_dx = np.zeros_like(padded)
    for k in range(3):
        place = want_dx[..., k * dilation :][..., : (length - 1) * stride + 1 : stride]
        place += np.einsum("ngol,goc->ngcl", dy, w[..., k])
    want_dx = want_dx.reshape(2, 4, -1)[..., padding : padding + 11]
    np.testing.assert_allclose(dx, want_dx, atol=1e-12)


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize("border", ("replicate", "reflect", "reflect_101", "wrap", "constant"))
def test_gradient_of_remap_is_its_adjoint(border: str, threads: int) -> None:
    """More points than are done at once, several planes and images: sum(remap(z) * g) is sum(z * its gradient)."""
    rng = np.random.RandomState(0)
    x, z, g = rng.randn(2, 5, 9, 7), rng.randn(2, 5, 9, 7), rng.randn(2, 5, 17, 13)
    places = Tensor(rng.rand(2, 17, 13, 2) * 14 - 3, "float64")
    before = mge.device.get_num_threads()
    mge.device.set_num_threads(threads)
    try:
        (dx,) = gradients(lambda x: F.remap(x, places, border_mode=border) * Tensor(g, "float64"), x)
        mapped = F.remap(Tensor(z, "float64"), places, border_mode=border).numpy()
    finally:
        mge.device.set_num_threads(before)
    np.testing.assert_allclose((mapped * g).sum(), (z * dx).sum(), rtol=1e-12)


@pytest.mark.parametrize("size", (300, 100_000))
def test_gradient_of_values_set_by_an_index(size: int) -> None:
    """Where a place is named twice the last value stays, so that the others have no gradient."""
    rng = np.random.RandomState(0)
    for places in (rng.randint(-size, size, 200), rng.permutation(size)[:200], rng.randint(0, 5, 50)):
        x, v = np.zeros(size), rng.randn(places.size)

        def put(x: Tensor, v: Tensor, places: np.ndarray = places) -> Tensor:
            y = x + 0
            y[tensor(places.astype("int32"))] = v
            return y * Tensor(np.arange(1.0, size + 1), "float64")

        dx, dv = gradients(put, x, v)
        last = np.array([places[i] % size not in places[i + 1 :] % size for i in range(places.size)])
        assert np.array_equal(dv, np.where(last, places % size + 1.0, 0))
        want = np.arange(1.0, size + 1)
        want[places] = 0
        assert np.array_equal(dx, want)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: F.arange(float("nan")), r"arange: start, stop and step must be finite; got 0, nan, 1\."),
        (lambda: F.arange(0, float("inf")), r"arange: start, stop and step must be finite"),
        (lambda: F.eye(-1), r"eye: a size cannot be negative; got \(-1,\)\."),
        (lambda: F.one_hot(tensor([0]), -1), r"one_hot: num_classes must be at least 0; got -1\."),
        (lambda: F.group_norm(F.ones((1, 4, 2, 2)), 0, False), "group_norm: 4 channels do not fall into 0 groups"),
        (
            lambda: F.sliding_window(F.ones((1, 1, 4, 4)), 0),
            "sliding_window: kernel_size: all numbers must be",
        ),
        (
            lambda: F.sliding_window_transpose(F.ones((1, 1, 1, 1, 1, 1)), 1, 1, stride=0),
            "sliding_window_transpose: stride: all numbers must be at least 1",
        ),
        (lambda: F.conv1d(F.ones((1, 1, 4)), F.ones((1, 1, 2)), stride=0), "conv1d: stride: all numbers must be at"),
        (lambda: F.conv1d(F.ones((1, 1, 4)), F.ones((1, 1, 2)), padding=-1), "conv1d: padding: all numbers must be at"),
        (
            lambda: F.conv1d(F.ones((1, 1, 4)), F.ones((1, 1, 2)), dilation=(1, 2)),
            "conv1d: dilation must be one number",
        ),
        *(
            (
                lambda f=f: F.vision.interpolate(F.ones((1, 1, 2, 2)), scale_factor=f),
                "interpolate: a scale factor must be above 0 and finite",
            )
            for f in (float("nan"), float("inf"), -1, 0)
        ),
    ],
)
def test_numbers_out_of_range_are_told_by_name(call, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_resizing_no_images_takes_nothing(mode: str) -> None:
    """Whatever the size: that of no images is one of no pixels."""
    x = tensor(np.zeros((0, 3, 4, 4), np.float32))
    assert F.vision.interpolate(x, (2**40, 1), mode=mode).shape == (0, 3, 2**40, 1)


def test_an_index_that_int32_cannot_reach_is_refused() -> None:
    """It was made another number: the last row was some other one."""
    rows = F.broadcast_to(tensor(np.ones((1, 1), np.float32)), (3_000_000_000, 1))
    for i in (-1, 2_500_000_000):
        with pytest.raises(ValueError, match="embedding: positions are int32, but there are 3000000000 entries"):
            F.embedding(Tensor([i], dtype="int64"), rows)


def test_numbers_of_attributes_that_no_int64_holds() -> None:
    """They came back as a result beside an error, which Python does not take."""
    for call in (F.cumsum, lambda x, axis: F.concat([x, x], axis=axis)):
        with pytest.raises(TypeError, match="attribute 'axis': int too big to convert"):
            call(F.ones((2, 3)), np.uint64(2**64 - 1))
    assert F.cumsum(F.ones((2, 3)), np.uint64(1)).numpy()[0, 2] == 3


def test_a_list_of_sizes_that_changes_while_it_is_read() -> None:
    class Ends:
        def __index__(self) -> int:
            sizes.clear()
            return 6

    sizes: list = [Ends(), *(10**30 + i for i in range(1000))]
    assert _core.ops.reshape(F.ones((2, 3)), shape=sizes).shape == (6,)


def test_what_is_wrong_is_the_same_with_a_gradient() -> None:
    """Some ops are differentiated as their parts, which rely on attributes that were checked."""
    x, stats, weight = Tensor(np.ones((3, 4, 8), np.float32)), F.ones((3, 4, 1)), F.ones((8,))
    gm = GradManager().attach([x])
    with gm, pytest.raises(ValueError, match="layer_norm_bwd: n_axes must be 1..3 for input"):
        _core.ops.layer_norm_bwd(x, x, stats, stats, weight, n_axes=1000)
