"""The original's op classes beside the functions that say the same: images, cells, LAMB, and rules to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from test_builtin_ops import IMAGE, X, Y, run, sigmoid

import megengine as mge
import megengine.functional as F
from megengine import tensor
from megengine.autodiff import GradManager
from megengine.core._imperative_rt.core2 import apply
from megengine.core.ops import builtin

# ---- images, cells, LAMB


def draw(*shape: int) -> np.ndarray:
    return np.random.RandomState(len(shape)).standard_normal(shape).astype("float32")


def ints(*values: int) -> mge.Tensor:
    return tensor(np.array(values, "int32"))


MAT = np.array([[[1, 0.1, 0.2], [0, 1, 0.3], [0, 0, 1]]], "float32")
ROIS = np.array([[0, 0.5, 0.5, 3.2, 3.1]], "float32")
COLOURS = (np.abs(draw(1, 4, 4, 3)) * 50).astype("uint8")
VISION = [
    (builtin.Resize(), (draw(1, 3, 3, 2), ints(5, 6)), lambda x, s: F.vision.resize(x, (5, 6), "NHWC")),
    (
        builtin.Resize(imode="NEAREST", format="NCHW"),
        (IMAGE, ints(5, 9)),
        lambda x, s: F.vision.interpolate(x, (5, 9), mode="nearest"),
    ),
    (
        builtin.Resize3D(format="NCDHW"),
        (draw(1, 1, 2, 2, 2), ints(3, 3, 3)),
        lambda x, s: F.vision.interpolate(x, (3, 3, 3), mode="trilinear"),
    ),
    (
        builtin.WarpPerspective(bmode="CONSTANT", border_val=2.0),
        (IMAGE[:1], MAT, ints(5, 5)),
        lambda x, m, s: F.vision.warp_perspective(x, m, (5, 5), border_mode="constant", border_val=2.0),
    ),
    (
        builtin.WarpPerspective(),
        (IMAGE, np.concatenate([MAT, MAT]), ints(1, 0), ints(3, 3)),
        lambda x, m, i, s: F.vision.warp_perspective(x, m, (3, 3), mat_idx=[1, 0]),
    ),
    (
        builtin.WarpAffine(format="NCHW"),
        (IMAGE[:1], MAT[:, :2], ints(3, 3)),
        lambda x, m, s: F.vision.warp_affine(x, m, (3, 3), format="NCHW"),
    ),
    (builtin.Remap(format="NCHW"), (IMAGE[:1], np.abs(draw(1, 3, 3, 2))), F.vision.remap),
    (
        builtin.ROIPooling(scale=0.5),
        (IMAGE, ROIS, ints(2, 2)),
        lambda x, r, s: F.vision.roi_pooling(x, r, 2, scale=0.5),
    ),
    (
        builtin.ROIAlign(mode="AVERAGE", pooled_height=2, pooled_width=3, offset=0.5, sample_height=1),
        (IMAGE, ROIS),
        lambda x, r: F.vision.roi_align(x, r, (2, 3), sample_points=(1, 2)),
    ),
    (builtin.Correlation(pad_size=1), (IMAGE, IMAGE[::-1].copy()), lambda a, b: F.vision.correlation(a, b, pad_size=1)),
    (builtin.Flip(vertical=True), (draw(1, 3, 4, 2),), lambda x: F.vision.flip(x, True, False)),
    (builtin.Rotate(clockwise=False), (draw(1, 3, 4, 2),), lambda x: F.vision.rot90(x, False)),
    (builtin.CvtColor(mode="RGB2BGR"), (COLOURS,), lambda x: F.vision.cvt_color(x, "RGB2BGR")),
]


@pytest.mark.parametrize("op, inputs, want", VISION, ids=[type(v[0]).__name__ for v in VISION])
def test_ops_on_images(op, inputs, want) -> None:
    tensors = [x if isinstance(x, mge.Tensor) else tensor(x) for x in inputs]
    np.testing.assert_array_equal(apply(op, *tensors)[0].numpy(), want(*tensors).numpy())


def test_remap_of_channels_last_images() -> None:
    x, where = tensor(IMAGE[:1].transpose(0, 2, 3, 1)), tensor(np.abs(draw(1, 3, 3, 2)))
    want = F.vision.remap(tensor(IMAGE[:1]), where).numpy().transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(apply(builtin.Remap(), x, where)[0].numpy(), want)


def test_recurrent_cells_of_every_nonlinearity() -> None:
    x, w, h, u, b = draw(2, 3), draw(16, 3), draw(2, 4), draw(16, 4), draw(16)
    gates = x @ w.T + h @ u.T + 2 * b
    inputs = [tensor(v) for v in (x, w, b, h, u, b)]
    for mode, act in (("IDENTITY", lambda v: v), ("RELU", lambda v: np.maximum(v, 0)), ("TANH", np.tanh)):
        got = apply(builtin.RNNCell(nonlineMode=mode), *inputs[:3], inputs[3], inputs[4], inputs[5])[0]
        np.testing.assert_allclose(got.numpy(), act(gates), rtol=1e-4, atol=1e-5)
    i, f, g, o = np.split(gates, 4, axis=1)
    c = sigmoid(f) * h + sigmoid(i) * np.tanh(g)
    got = [t.numpy() for t in apply(builtin.LSTMCell(), *inputs, tensor(h))]
    for a, want in zip(got, (sigmoid(o) * np.tanh(c), c, gates)):
        np.testing.assert_allclose(a, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("decay, correct, adapt", [(0.01, True, False), (0.0, False, False), (0.0, True, True)])
def test_lamb_step(decay: float, correct: bool, adapt: bool) -> None:
    m, v, p, g = (draw(*s).reshape(-1).astype("float64") for s in ((7,), (7, 1), (7, 1, 1), (7, 1, 1, 1)))
    v = np.abs(v)
    op = builtin.LAMBUpdate(0.9, 0.99, 3.0, 0.1, decay, 1e-6, correct, adapt)
    got = [t.numpy() for t in apply(op, *(tensor(a.astype("float32")) for a in (m, v, p, g)))]
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    r = (m / (1 - 0.9**3 if correct else 1)) / (np.sqrt(v / (1 - 0.99**3 if correct else 1)) + 1e-6) + decay * p
    trust = np.linalg.norm(p) / np.linalg.norm(r) if decay or adapt else 1.0
    for a, want in zip(got, (m, v, p - 0.1 * trust * r)):
        np.testing.assert_allclose(a, want, rtol=1e-4, atol=1e-6)


# ---- rules beside the functions that say the same


def _image(*shape: int) -> np.ndarray:
    return np.random.RandomState(len(shape) + shape[-1]).uniform(-1, 1, shape).astype("float32")


SAME = {
    "DeformableConv": (
        builtin.DeformableConv(pad_h=1, pad_w=1, stride_h=2),
        (IMAGE, _image(4, 3, 3, 3), _image(2, 18, 3, 6), _image(2, 9, 3, 6)),
        lambda *a: F.deformable_conv2d(*a, stride=(2, 1), padding=1),
    ),
    "GroupLocal": (
        builtin.GroupLocal(dilate_h=2, dilate_w=2),
        (IMAGE, _image(3, 2, 2, 1, 3, 3, 2)),
        lambda x, w: F.local_conv2d(x, w, dilation=2),
    ),
    "RegionRestrictedConvolution": (
        builtin.RegionRestrictedConvolution(pad_h=1, pad_w=1, sparse="GROUP"),
        (IMAGE, _image(1, 4, 3, 3, 3), *[(_image(2, 6, 6) > 0).astype("int32")] * 2),
        lambda x, w, a, b: F.region_restricted_conv(x, w, a, b, padding=1),
    ),
    "Convolution3D": (
        builtin.Convolution3D(pad_d=1, stride_h=2),
        (_image(1, 2, 3, 4, 4), _image(3, 2, 2, 2, 2)),
        lambda x, w: F.conv3d(x, w, stride=(1, 2, 1), padding=(1, 0, 0)),
    ),
    "Convolution3DBackwardData": (
        builtin.Convolution3DBackwardData(stride_h=2),
        (_image(3, 2, 2, 2, 2), _image(1, 3, 3, 3, 3)),
        lambda w, x: F.conv_transpose3d(x, w, stride=(1, 2, 1)),
    ),
    "Images2Neibs": (
        builtin.Images2Neibs(1, 0, 2, 1, 1, 2, 3, 2),
        (IMAGE,),
        lambda x: F.sliding_window(x, (3, 2), (1, 0), (2, 1), (1, 2)),
    ),
    "SlidingWindowTranspose": (
        builtin.SlidingWindowTranspose(6, 6, 1, 1, 2, 1),
        (_image(2, 3, 3, 6, 3, 3),),
        lambda x: F.sliding_window_transpose(x, 6, 3, 1, (2, 1)),
    ),
    "GroupNorm": (
        builtin.GroupNorm(group=3),
        (IMAGE, X[0, :3], Y[0, :3]),
        lambda x, w, b: F.group_norm(x, 3, True, w, b),
    ),
    "InstanceNorm": (
        builtin.InstanceNorm(eps=1e-3),
        (IMAGE, X[0, :3], Y[0, :3]),
        lambda x, w, b: F.instance_norm(x, True, w, b, 1e-3),
    ),
    "GeneralNorm": (
        builtin.GeneralNorm(axis_start=1, axis_end=3),
        (IMAGE, _image(3, 6), _image(3, 6)),
        lambda x, w, b: F.general_norm(x, (1, 2), True, w, b),
    ),
    "LRN": (builtin.LRN(3, 1.0, 0.5, 0.5), (IMAGE,), lambda x: F.local_response_norm(x, 3, 1.0, 0.5, 0.5)),
    "Cross": (builtin.Cross(0, 1, 1), (X[:, :2], Y.T[:2]), lambda a, b: F.cross(a, b, 0, 1, 1)),
    "Diag of a vector": (builtin.Diag(-1), (X[0],), lambda x: F.diag(x, -1)),
    "Diag of a matrix": (builtin.Diag(1), (X,), lambda x: F.diag(x, 1)),
    "SVD": (builtin.SVD(), (X,), lambda x: F.svd(x)[0]),
    "Argsort": (builtin.Argsort("DESCENDING"), (X,), lambda x: F.sort(x, True)[0]),
    "TopK": (builtin.TopK("VALUE_IDX_SORTED"), (X, np.array(2)), lambda x, k: F.topk(x, 2, descending=False)[0]),
    "TopK of one": (builtin.TopK(), (X, np.array(-3)), lambda x, k: F.topk(x, 3, kth_only=True)[0]),
    "Padding REFLECT": (
        builtin.Padding(front_offset_dim0=2, back_offset_dim1=3, padding_mode="REFLECT"),
        (X,),
        lambda x: F.pad(x, ((2, 0), (0, 3)), "reflect"),
    ),
    "Padding REPLICATE": (
        builtin.Padding(front_offset_dim1=5, padding_mode="REPLICATE"),
        (X,),
        lambda x: F.pad(x, ((0, 0), (5, 0)), "edge"),
    ),
    "Linspace": (
        builtin.Linspace(),
        (np.float32(-1), np.float32(2), np.array(7)),
        lambda a, b, n: F.linspace(-1, 2, 7),
    ),
    "PixelShuffle": (builtin.PixelShuffle(2), (_image(2, 8, 2, 3),), lambda x: F.pixel_shuffle(x, 2)),
    "Pooling of bytes": (
        builtin.Pooling("AVERAGE"),
        (COLOURS.transpose(0, 3, 1, 2).copy(),),
        lambda x: F.avg_pool2d(x, 2, mode="average"),
    ),
}


@pytest.mark.parametrize("case", SAME)
def test_rules_give_the_bits_of_functions(case: str) -> None:
    op, inputs, same = SAME[case]
    tensors = [tensor(a) for a in inputs]
    got, want = apply(op, *tensors)[0], same(*tensors)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got.numpy(), want.numpy())


@pytest.mark.parametrize("mode", builtin.CvtColor.Mode.names)
def test_colours_are_those_of_the_function(mode: str) -> None:
    channels = (
        4 if mode.startswith("RGBA") else 1 if mode.startswith("GRAY") or mode[-4:-2] in ("NV", "YU", "YV") else 3
    )
    channels = 1 if mode.startswith("YCrCb") else channels
    x = tensor(np.random.RandomState(0).randint(0, 256, (2, 6, 4, channels)).astype("uint8"))
    np.testing.assert_array_equal(apply(builtin.CvtColor(mode), x)[0].numpy(), F.vision.cvt_color(x, mode).numpy())


def test_random_classes_draw_what_the_functions_draw() -> None:
    from megengine import random

    shape, rate = tensor([5, 4]), tensor(np.abs(X) + 1)
    pairs = [
        (builtin.UniformRNG(), (shape,), lambda: random.uniform(size=(5, 4))),
        (builtin.GaussianRNG(mean=2.0, std=3.0), (shape,), lambda: random.normal(2, 3, (5, 4))),
        (builtin.GammaRNG(), (rate, rate), lambda: random.gamma(rate, rate)),
        (builtin.BetaRNG(), (rate, rate), lambda: random.beta(rate, rate)),
        (builtin.PoissonRNG(), (rate,), lambda: random.poisson(rate)),
        (builtin.ExponentialRNG(), (rate,), lambda: random.exponential(rate)),
        (builtin.MultinomialRNG(num_samples=2), (rate,), lambda: random.multinomial(rate, 2)),
        (builtin.PermutationRNG(dtype="int16"), (tensor(9),), lambda: random.permutation(9, dtype="int16")),
        (builtin.Dropout(0.5), (rate,), lambda: F.dropout(rate, 0.5)),
    ]
    for op, inputs, draw in pairs:
        random.seed(11)
        want = [draw().numpy(), draw().numpy()]
        random.seed(11)
        for w in want:
            got = apply(op, *inputs)[0].numpy()
            assert got.dtype == w.dtype
            np.testing.assert_array_equal(got, w, err_msg=repr(op))


def test_formats_without_a_rule_are_refused() -> None:
    w = np.ones((1, 3, 1, 1), "float32")
    for op, inputs in (
        (builtin.Convolution(format="NHWC"), (IMAGE, w)),
        (builtin.Pooling(format="NHWC"), (IMAGE,)),
        (builtin.GroupNorm(format="NHWC"), (IMAGE,)),
    ):
        with pytest.raises(NotImplementedError, match="format must be NCHW; got NHWC"):
            run(op, *inputs)
    with pytest.raises(RuntimeError, match="Convolution: needs 2 inputs; got 1"):
        run(builtin.Convolution(), IMAGE)


def test_convolution_mode_turns_the_kernel() -> None:
    w = np.random.RandomState(0).uniform(-1, 1, (4, 3, 3, 3)).astype("float32")
    got = run(builtin.Convolution(mode="CONVOLUTION"), IMAGE, w)[0]
    np.testing.assert_array_equal(got, run(builtin.Convolution(), IMAGE, w[:, :, ::-1, ::-1].copy())[0])


def test_parameters_that_say_a_dtype_are_followed() -> None:
    h = tensor(X).astype("float16")
    assert apply(builtin.Reduce("SUM", 0, "FLOAT_O32xC32"), h)[0].dtype == np.float32
    assert apply(builtin.Reduce("SUM", 0, "FLOAT_O16xC32"), tensor(X))[0].dtype == np.float16
    assert apply(builtin.ElemwiseMultiType("LT", "float32"), tensor(X), tensor(Y))[0].dtype == np.float32
    w = tensor(np.ones((4, 3, 1, 1), "float32"))
    assert apply(builtin.ConvBias(dtype="float16"), tensor(IMAGE), w)[0].dtype == np.float16
    for op, inputs, text in (
        (builtin.Reduce("SUM", 0, "QINT_I8xO32"), (X,), "quantised"),
        (builtin.MatrixMul(format="MK4"), (X, Y), "format must be DEFAULT; got MK4"),
        (builtin.Correlation(format="NCHW_WINOGRAD"), (IMAGE, IMAGE), "format must be NCHW"),
    ):
        with pytest.raises(NotImplementedError, match=text):
            run(op, *inputs)
    with pytest.raises(TypeError, match="needs a dtype"):
        run(builtin.TypeCvt(), X)


def _slopes(op, inputs, dy):
    """Result and gradients of the inputs."""
    tensors = [tensor(a) for a in inputs]
    gm = GradManager().attach(tensors)
    with gm:
        (y,) = apply(op, *tensors)
        gm.backward(y, tensor(dy))
    return y.numpy(), [t.grad.numpy() if t.grad is not None else None for t in tensors]


def test_simulated_quantisation_and_its_gradients() -> None:
    x = np.float32([[-9, -1.26, -0.3, 0.24], [0.25, 0.9, 3.1, 40]])
    dy = np.float32([[1, 2, 3, 4], [5, 6, 7, 8]])
    lo, hi, zero = -4, 5, 1
    half_away = lambda v: np.copysign(np.floor(np.abs(v) + 0.5), v)  # noqa: E731

    scale = np.float32([[0.5], [0.25]])
    q = half_away(x / scale) + zero
    y, (dx, *_) = _slopes(builtin.FakeQuant(lo, hi), (x, scale, np.float32(zero)), dy)
    np.testing.assert_array_equal(y, ((np.clip(q, lo, hi) - zero) * scale).astype("float32"))
    np.testing.assert_array_equal(dx, dy * ((lo <= q) & (q <= hi)))
    assert np.isnan(run(builtin.FakeQuant(lo, hi), np.float32([np.nan]), scale[0], np.float32([0]))[0]).all()

    t = 0.5
    z = x / t
    r, out = np.clip(half_away(z), lo, hi), (z < lo - 0.5) | (z > hi + 0.5)
    y, (dx, ds) = _slopes(builtin.TQT(lo, hi), (x, np.float32(-1)), dy)
    np.testing.assert_array_equal(y, (r * t).astype("float32"))
    np.testing.assert_array_equal(dx, dy * ~out)
    np.testing.assert_allclose(ds, (dy * t * np.log(2) * np.where(out, r, r - z)).sum(), rtol=1e-5)

    z = x / t + zero
    y, (dx, ds, *_) = _slopes(builtin.LSQ(lo, hi), (x, np.float32(t), np.float32(zero), np.float32(0.1)), dy)
    np.testing.assert_array_equal(y, ((half_away(np.clip(z, lo, hi)) - zero) * t).astype("float32"))
    inside = (lo <= z) & (z <= hi)
    np.testing.assert_array_equal(dx, dy * inside)
    np.testing.assert_allclose(ds, (dy * 0.1 * np.where(inside, half_away(z) - z, np.clip(z, lo, hi))).sum(), rtol=1e-5)
    with pytest.raises(TypeError, match="FakeQuant: takes float32; got float16"):
        apply(builtin.FakeQuant(), *(tensor(np.float16(1)) for _ in range(3)))
