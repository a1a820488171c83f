"""Functions on images against NumPy written pixel by pixel (reference_vision.py)."""

from __future__ import annotations

import numpy as np
import pytest
import reference_vision as ref
from functional_helpers import check, gradcheck, rand, same

import megengine.functional as F
from megengine import Tensor, tensor
from megengine.jit import trace

V = F.vision


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize("out", [(7, 4), (1, 1), (5, 6), (2, 11)])
def test_interpolate_images(mode, out):
    x = rand(2, 3, 5, 6)
    kind = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}[mode]
    check(V.interpolate(Tensor(x), out, mode=mode), ref.resize(x, out, kind), atol=1e-5)


def test_interpolate_lines_volumes_and_factors():
    x3, x4, x5 = rand(2, 3, 5), rand(1, 2, 4, 6), rand(1, 2, 3, 4, 5)
    check(V.interpolate(Tensor(x3), 8, mode="linear"), ref.resize(x3, (8,)), atol=1e-5)
    check(
        V.interpolate(Tensor(x3), 8, mode="linear", align_corners=True), ref.resize(x3, (8,), "linear", True), atol=1e-5
    )
    check(V.interpolate(Tensor(x5), (4, 3, 7), mode="trilinear"), ref.resize(x5, (4, 3, 7)), atol=1e-5)
    check(V.interpolate(Tensor(x4), scale_factor=1.7), ref.resize(x4, (6, 10)), atol=1e-5)
    check(V.interpolate(Tensor(x4), scale_factor=(0.5, 2)), ref.resize(x4, (2, 12)), atol=1e-5)
    check(V.interpolate(Tensor(x4), (8, 3), align_corners=True), ref.resize(x4, (8, 3), "linear", True), atol=1e-5)
    assert V.interpolate(Tensor(x4), 4).shape == (1, 2, 4, 1)  # one number is the height
    line = Tensor(np.arange(32, dtype="float32").reshape(1, 1, 32, 1))
    assert V.interpolate(line, (1, 1)).item() == 15.5
    half = V.interpolate(Tensor(x4.astype("float16"), "float16"), (2, 2))
    assert half.dtype == np.float32


def test_interpolate_and_resize_refuse():
    x = Tensor(rand(1, 1, 4, 4))
    for args, error in [
        ({}, ValueError),
        ({"size": (2, 2), "scale_factor": 2}, ValueError),
        ({"size": (2, 2), "mode": "area"}, ValueError),
        ({"size": (2, 2), "mode": "nearest", "align_corners": True}, ValueError),
        ({"size": (2,), "mode": "linear"}, AssertionError),
        ({"size": (2, 2, 2)}, ValueError),
        ({"scale_factor": (2.0,)}, ValueError),
        ({"size": (0, 2)}, RuntimeError),
    ]:
        with pytest.raises(error):
            V.interpolate(x, **args)
    with pytest.raises(ValueError, match="imode"):
        V.resize(x, (2, 2), imode="area")


def test_resize_formats_dtypes_and_limit():
    x = rand(2, 3, 4, 5)
    want = ref.resize(x, (6, 3))
    check(V.resize(Tensor(x), (6, 3)), want, atol=1e-5)
    check(V.resize(Tensor(x.transpose(0, 2, 3, 1).copy()), (6, 3), "NHWC"), want.transpose(0, 2, 3, 1), atol=1e-5)
    assert V.resize(Tensor(x), (6, 3), max_size=4).shape == (2, 3, 4, 3)
    u = np.random.RandomState(0).randint(0, 256, (1, 1, 4, 5)).astype("uint8")
    got = V.resize(Tensor(u, "uint8"), (6, 3))
    assert got.dtype == np.uint8
    np.testing.assert_allclose(got.numpy(), ref.resize(u.astype("float64"), (6, 3)), atol=0.5001)


MATS = np.array([[[1.1, 0.2, 0.3], [-0.1, 0.9, 0.5], [0.01, 0.02, 1.0]], [[1, 0, -1], [0, 1, 2], [0, 0, 1]]], "float32")


def through(mat, height, width):
    """Input positions (x, y) for each output pixel."""
    out = np.zeros((len(mat), height, width, 2))
    for n, i, j in np.ndindex(len(mat), height, width):
        p = mat[n].astype("float64") @ [j, i, 1]
        out[n, i, j] = p[:2] / (p[2] if len(p) == 3 else 1)
    return out


@pytest.mark.parametrize("border", ["replicate", "reflect", "reflect_101", "wrap", "constant"])
def test_warps(border):
    x = rand(2, 3, 5, 6)
    how = {"border": border, "value": 3.0 if border == "constant" else 0.0}
    options = {"border_mode": border, "border_val": 3.0}
    want = ref.remap(x, through(MATS, 4, 5), **how)
    check(V.warp_perspective(Tensor(x), Tensor(MATS), (4, 5), **options), want, atol=1e-4)
    want = ref.remap(x, through(MATS[:, :2], 4, 5), **how)
    check(V.warp_affine(Tensor(x), Tensor(MATS[:, :2]), (4, 5), format="NCHW", **options), want, atol=1e-4)
    nhwc = V.warp_affine(Tensor(x.transpose(0, 2, 3, 1).copy()), Tensor(MATS[:, :2]), (4, 5), **options)
    want = ref.remap(x, np.floor(through(MATS[:, :2], 4, 5) * 32 + 0.5) / 32, **how)  # as the original rounds there
    check(nhwc, want.transpose(0, 2, 3, 1), atol=1e-4)


def test_warp_picks_images_and_keeps_dtypes():
    x = rand(3, 1, 4, 4)
    y = V.warp_perspective(Tensor(x), Tensor(MATS), (4, 4), [2, 2])
    check(y, ref.remap(x[[2, 2]], through(MATS, 4, 4)), atol=1e-4)
    shift = np.array([[[1, 0, 1], [0, 1, 1], [0, 0, 1]]], "float32")
    for dtype in ("float32", "float16", "int8", "uint8"):
        n = np.arange(16).reshape(1, 1, 4, 4).astype(dtype)
        got = V.warp_perspective(Tensor(n, dtype), Tensor(shift), (2, 2))
        assert got.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(got.numpy(), n[:, :, 1:3, 1:3])
    with pytest.raises(RuntimeError, match=r"must be \(B, 3, 3\)"):
        V.warp_perspective(Tensor(x), Tensor(MATS[:, :2]), (4, 4))
    with pytest.raises(ValueError, match="border_mode"):
        V.warp_perspective(Tensor(x), Tensor(MATS), (4, 4), border_mode="mirror")


def test_warp_gradients():
    mat = np.array([[[1.03, 0.21, 0.33], [-0.11, 0.93, 0.52], [0.013, 0.021, 1.0]]], "float32")
    gradcheck(lambda x, m: V.warp_perspective(x, m, (2, 3), border_mode="reflect"), rand(1, 2, 4, 5), mat, eps=1e-6)


def test_remap_of_the_manual():
    x = Tensor(np.array([[[[1, 2], [3, 4]]]], "float32"))
    place = Tensor(np.array([[[[0.0, 0.0], [1.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]]], "float32"))
    assert V.remap(x, place).tolist() == [[[[1.0, 4.0], [4.0, 4.0]]]]
    with pytest.raises(RuntimeError, match="of as many images"):
        V.remap(x, Tensor(np.zeros((2, 1, 1, 2), "float32")))


ROIS = np.array([[0, 0.3, 0.7, 4.2, 3.9], [1, 1, 1, 2, 2], [1, -2, 0, 7, 9], [0, 3.4, 2.2, 3.3, 2.1]], "float32")


def test_regions():
    x = rand(2, 3, 5, 6)
    for mode in ("average", "max"):
        for aligned in (True, False):
            got = V.roi_align(Tensor(x), Tensor(ROIS), (2, 3), mode, 0.8, 2, aligned)
            want = ref.roi_align(x, ROIS, (2, 3), (2, 2), 0.8, aligned, mode == "max")
            check(got, want, atol=1e-5)
        check(
            V.roi_pooling(Tensor(x), Tensor(ROIS), 3, mode, 0.8), ref.roi_pooling(x, ROIS, (3, 3), 0.8, mode == "max")
        )
    assert V.roi_align(Tensor(x), Tensor(np.zeros((0, 5), "float32")), 2).shape == (0, 3, 2, 2)
    with pytest.raises(RuntimeError, match="region 0 names image 2, but there are 2"):
        V.roi_align(Tensor(x), Tensor([[2.0, 0.0, 0.0, 1.0, 1.0]]), 1).numpy()
    with pytest.raises(ValueError, match="mode must be"):
        V.roi_pooling(Tensor(x), Tensor(ROIS), 2, "sum")
    with pytest.raises(RuntimeError, match=r"rois must be \[K,5\]"):
        V.roi_pooling(Tensor(x), Tensor(ROIS[:, :4]), 2)


def test_nms():
    box = np.array([[0, 0, 100, 100], [10, 10, 100, 100], [50, 50, 100, 100], [100, 100, 150, 150]], "float32")
    scores = np.array([0.5, 0.6, 0.9, 0.6], "float32")
    assert V.nms(Tensor(box), Tensor(scores), 0.5).tolist() == [2, 1, 3]
    assert V.nms(Tensor(box), Tensor(scores), 0.5, max_output=2).tolist() == [2, 1]
    empty = V.nms(Tensor(np.zeros((0, 4), "float32")), Tensor(np.zeros(0, "float32")), 0.5)
    assert empty.shape == (0,) and empty.dtype == np.int32
    corner = np.random.RandomState(1).uniform(0, 30, (200, 2))
    box = np.concatenate([corner, corner + np.random.RandomState(2).uniform(3, 9, (200, 2))], 1).astype("float32")
    scores = np.random.RandomState(3).rand(200).astype("float32")
    want, count = ref.nms(box.astype("float64"), scores, 0.4, 200)
    assert V.nms(Tensor(box), Tensor(scores), 0.4).tolist() == want[: int(count)].tolist()
    f = trace(lambda b, s: V.nms(b, s, 0.4, 50).astype("float32").sum())
    for _ in range(3):
        assert f(Tensor(box), Tensor(scores)).item() == ref.nms(box, scores, 0.4, 50)[0].sum()
    with pytest.raises(ValueError, match="needs boxes"):
        V.nms(Tensor(box), Tensor(scores[:3]), 0.4)


@pytest.mark.parametrize(
    "k, most, s1, s2, edge, multiply",
    [(1, 1, 1, 1, 1, True), (3, 2, 1, 1, 3, True), (1, 2, 2, 2, 2, False), (3, 2, 2, 1, 3, False)],
)
def test_correlation(k, most, s1, s2, edge, multiply):
    a, b = rand(2, 3, 5, 6), rand(2, 3, 5, 6)
    got = V.correlation(Tensor(a), Tensor(b), k, most, s1, s2, edge, multiply)
    pa, pb = (np.pad(v, ((0, 0), (0, 0), (edge, edge), (edge, edge))).astype("float64") for v in (a, b))
    reach, border, half = most // s2, most + k // 2, k // 2
    moves = [(dy * s2, dx * s2) for dy in range(-reach, reach + 1) for dx in range(-reach, reach + 1)]
    oh, ow = (int(np.ceil((n - 2 * border) / s1)) for n in pa.shape[2:])
    want = np.zeros((2, len(moves), oh, ow))
    for m, (dy, dx) in enumerate(moves):
        for i, j in np.ndindex(oh, ow):
            y, x = border + i * s1, border + j * s1
            p = pa[:, :, y - half : y + half + 1, x - half : x + half + 1]
            q = pb[:, :, y + dy - half : y + dy + half + 1, x + dx - half : x + dx + half + 1]
            want[:, m, i, j] = (p * q if multiply else np.abs(p - q)).mean((1, 2, 3))
    check(got, want, atol=1e-5)


def test_correlation_refuses():
    x = Tensor(rand(1, 1, 4, 4))
    with pytest.raises(RuntimeError, match="odd"):
        V.correlation(x, x, 2)
    with pytest.raises(RuntimeError, match="one shape"):
        V.correlation(x, Tensor(rand(1, 1, 4, 5)))
    with pytest.raises(RuntimeError, match="leave nothing"):
        V.correlation(x, x, max_displacement=4)


def in_14_bits(sums):
    """What MegEngine computes of integers, as measured there: factors in parts of 2^14, rounded."""
    return (sums.astype("int64") + 8192) >> 14


def test_colours():
    x = np.random.RandomState(0).randint(0, 256, (1, 4, 6, 3)).astype("uint8")
    gray = x @ np.array([0.299, 0.587, 0.114])
    got = V.cvt_color(Tensor(x, "uint8"), "RGB2GRAY")
    assert got.dtype == np.uint8 and got.shape == (1, 4, 6, 1)
    np.testing.assert_allclose(got.numpy()[..., 0], gray, atol=0.51)
    np.testing.assert_array_equal(got.numpy()[..., 0], in_14_bits(x @ np.array([4899, 9617, 1868])))
    check(V.cvt_color(Tensor(x.astype("float32")), "rgb2gray"), gray[..., None], rtol=1e-4)
    np.testing.assert_array_equal(V.cvt_color(Tensor(x, "uint8"), "RGB2BGR").numpy(), x[..., ::-1])
    four = np.concatenate([x, x[..., :1]], -1)
    np.testing.assert_array_equal(V.cvt_color(Tensor(four, "uint8"), "RGBA2BGR").numpy(), x[..., ::-1])
    one = V.cvt_color(Tensor(x[..., :1].copy(), "uint8"), "GRAY2RGB")
    np.testing.assert_array_equal(one.numpy(), np.repeat(x[..., :1], 3, -1))
    with pytest.raises(AssertionError, match="mode must be one of"):
        V.cvt_color(Tensor(x, "uint8"), "RGB2HSV")
    with pytest.raises(RuntimeError, match="takes 3 channels"):
        V.cvt_color(Tensor(four, "uint8"), "RGB2GRAY")


def test_yuv_goes_there_and_back():
    x = np.random.RandomState(0).randint(0, 256, (1, 4, 6, 3)).astype("uint8")
    r, g, b = np.moveaxis(x.astype("float64"), -1, 0)
    y = 0.299 * r + 0.587 * g + 0.114 * b
    want = np.clip(np.stack([y, 0.492 * (b - y) + 128, 0.877 * (r - y) + 128], -1), 0, 255)
    yuv = V.cvt_color(Tensor(x, "uint8"), "RGB2YUV")
    np.testing.assert_allclose(yuv.numpy(), want, atol=1)
    r, g, b = np.moveaxis(x.astype("int64"), -1, 0)
    whole = in_14_bits(4899 * r + 9617 * g + 1868 * b)
    u, v = in_14_bits((b - whole) * 8061) + 128, in_14_bits((r - whole) * 14369) + 128
    np.testing.assert_array_equal(yuv.numpy(), np.clip(np.stack([whole, u, v], -1), 0, 255))
    u, v = np.moveaxis(x[..., 1:].astype("int64") - 128, -1, 0)
    parts = [in_14_bits(18678 * v), in_14_bits(-6472 * u - 9519 * v), in_14_bits(33292 * u)]
    got = V.cvt_color(Tensor(x, "uint8"), "YUV2RGB").numpy()
    np.testing.assert_array_equal(got, np.clip(x[..., :1] + np.stack(parts, -1), 0, 255))
    f = x.astype("float32") / 255
    back = V.cvt_color(V.cvt_color(Tensor(f), "RGB2YUV"), "YUV2RGB")
    np.testing.assert_allclose(back.numpy(), f, atol=2e-3)


@pytest.mark.parametrize("layout", ["NV12", "NV21", "YU12", "YV12"])
@pytest.mark.parametrize("table", ["YUV2RGB", "YUV2BGR", "BT601_YUV2RGB", "YUV2GRAY"])
def test_yuv_with_small_colour_planes(table, layout):
    rng = np.random.RandomState(1)
    y, u, v = (rng.randint(60, 180, s).astype("uint8") for s in ((4, 6), (2, 3), (2, 3)))
    one, two = (u, v) if layout in ("NV12", "YU12") else (v, u)
    below = np.stack([one, two], -1) if layout.startswith("NV") else np.stack([one, two])
    packed = np.concatenate([y, below.reshape(2, 6)])[None, ..., None]
    fy = y.astype("float64")
    fu, fv = (np.repeat(np.repeat(p, 2, 0), 2, 1) - 128.0 for p in (u.astype("float64"), v.astype("float64")))
    exact = not table.startswith("BT601")
    if not exact:
        fy = 1.164 * (fy - 16)
        want = np.stack([fy + 1.594 * fv, fy - 0.391 * fu - 0.813 * fv, fy + 2 * fu], -1)  # as measured there
    else:  # in parts of 256, rounded down, as measured there; near 1.402, 0.344, 0.714 and 1.772
        iu, iv = fu.astype("int64"), fv.astype("int64")
        want = np.stack([fy + (359 * iv >> 8), fy - (88 * iu + 183 * iv >> 8), fy + (454 * iu >> 8)], -1)
    want = fy[..., None] if table == "YUV2GRAY" else want[..., ::-1] if table.endswith("BGR") else want
    got = V.cvt_color(Tensor(packed, "uint8"), f"{table}_{layout}")
    np.testing.assert_allclose(got.numpy()[0], np.clip(want, 0, 255), atol=0 if exact else 0.55)
    if layout == "NV21" and table in ("YUV2RGB", "YUV2BGR"):
        same = V.cvt_color(Tensor(packed, "uint8"), "YCrCb2" + table[-3:])
        np.testing.assert_array_equal(same.numpy(), got.numpy())
    with pytest.raises(RuntimeError, match="even H and W"):
        V.cvt_color(Tensor(packed[:, :5], "uint8"), f"{table}_{layout}")


def test_rotate_by_right_angles():
    x = rand(2, 2, 5, 5)
    check(V.rotate(Tensor(x), 180.0), x[:, :, ::-1, ::-1], atol=1e-4)
    quarter = V.rotate(Tensor(x), 90.0).numpy()
    assert any(np.allclose(quarter, np.rot90(x, k, (2, 3)), atol=1e-4) for k in (1, -1))
    assert V.rotate(Tensor(x.transpose(0, 2, 3, 1).copy()), 30.0, "NHWC", "area").shape == (2, 5, 5, 2)


def test_flip_and_rot90_are_nhwc() -> None:
    a = np.arange(24, dtype="float32").reshape(1, 2, 3, 4)
    same(F.vision.flip(tensor(a)), a[:, ::-1, ::-1])
    same(F.vision.rot90(tensor(a)), np.rot90(a, -1, (1, 2)))
