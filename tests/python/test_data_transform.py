"""Vision transforms against NumPy, with and without OpenCV."""

from __future__ import annotations

import numpy as np
import pytest

import megengine.data.transform as T
from megengine.data import DataLoader, SequentialSampler, _image
from megengine.data.dataset import ArrayDataset
from megengine.data.transform.vision import functional as VF

ORDER = ("image", "boxes", "mask", "boxes_category", "info", "coords", "keypoints")


@pytest.fixture(params=["opencv", "numpy"])
def engine(request, monkeypatch):
    """Everything but exotic interpolation works without OpenCV."""
    if request.param == "opencv":
        pytest.importorskip("cv2")
    else:
        monkeypatch.setitem(_image._modules, "cv2", None)
    return request.param


def image(height=37, width=53, channels=3, dtype=np.uint8):
    return np.random.RandomState(7).randint(0, 256, (height, width, channels)).astype(dtype)


def dot(height=37, width=53, at=(20, 30)):
    """A sample whose image, mask, box, point and key point are all at one pixel (x, y) = ``at``."""
    x, y = at
    picture = np.zeros((height, width, 3), np.uint8)
    picture[y, x] = 255
    point = np.array([[x + 0.5, y + 0.5]], np.float32)
    box = np.array([[x, y, x + 1, y + 1]], np.float32)
    keypoints = np.array([[[x + 0.5, y + 0.5, 2]]], np.float32)
    return picture, box, picture[:, :, :1].copy(), np.array([3]), "info", point, keypoints


PLACES = [
    T.RandomHorizontalFlip(1.0),
    T.RandomVerticalFlip(1.0),
    T.RandomHorizontalFlip(0.0),
    T.Pad(3),
    T.Pad((2, 5)),
    T.Pad((1, 2, 3, 4), value=7),
    T.CenterCrop((36, 51)),
    T.RandomCrop((36, 52), padding_size=2),
    T.RandomCrop((60, 70)),
    T.Resize((74, 106), interpolation=0),
    T.Normalize(1.0, 2.0),
    T.Compose([T.RandomVerticalFlip(1.0), T.Pad(2), T.RandomHorizontalFlip(1.0)]),
]


@pytest.mark.parametrize("transform", PLACES, ids=[f"{i}-{t}" for i, t in enumerate(PLACES)])
@pytest.mark.parametrize("seed", range(3))
def test_all_parts_of_a_sample_move_together(transform, seed, engine):
    np.random.seed(seed)
    transform = T.Compose([transform], order=ORDER)
    picture, boxes, mask, category, info, coords, keypoints = transform.apply(dot())
    ys, xs = np.nonzero(picture.max(axis=2) == picture.max())
    assert np.array_equal(np.nonzero(mask[:, :, 0]), (ys, xs))
    np.testing.assert_allclose(boxes, [[xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]])
    np.testing.assert_allclose(coords, [[xs.mean() + 0.5, ys.mean() + 0.5]])
    np.testing.assert_allclose(keypoints, [[[xs.mean() + 0.5, ys.mean() + 0.5, 2]]])
    assert category.tolist() == [3] and info == "info"
    assert boxes.dtype == coords.dtype == keypoints.dtype == np.float32


def test_polygons_move_as_points():
    flip = T.RandomHorizontalFlip(1.0, order=("image", "polygons"))
    polygon = np.array([[1.0, 2], [3, 4], [5, 9]])
    ((moved,),) = flip.apply((image(), [[polygon]]))[1]
    np.testing.assert_array_equal(moved, [[52, 2], [50, 4], [48, 9]])
    assert polygon[0, 0] == 1  # the input is left alone


def test_result_forms():
    t = T.Pad(1)
    assert t.apply(image()).shape == t.apply((image(),)).shape == (39, 55, 3)
    padded, extra = t.apply((image(), "label"))
    assert padded.shape == (39, 55, 3) and extra == "label"
    assert isinstance(t.apply_batch([image(), image()]), tuple)


def test_masks_may_lack_the_last_axis(engine):
    mask = image()[:, :, 0]
    for t in (T.Pad(2), T.Resize(20), T.RandomCrop(10, 2), T.RandomHorizontalFlip(1.0), T.RandomResizedCrop(9)):
        t = T.Compose([t], order=("image", "mask"))
        np.random.seed(0)
        flat = t.apply((image(), mask))[1]
        np.random.seed(0)
        deep = t.apply((image(), mask[:, :, None]))[1]
        np.testing.assert_array_equal(flat, deep[:, :, 0])


# ---- each transform


def test_to_mode():
    x = image()
    out = T.ToMode(order=("image", "mask")).apply((x, x[:, :, :1]))
    np.testing.assert_array_equal(out[0], x.transpose(2, 0, 1))
    assert out[1].shape == (1, 37, 53) and out[0].flags.c_contiguous


def test_pad_values():
    x = image(2, 2)
    out = T.Pad((1, 0, 0, 2), value=[1, 2, 3], mask_value=9, order=("image", "mask")).apply((x, x[:, :, :1]))
    np.testing.assert_array_equal(out[0], _padded(x))
    assert set(out[1][0].ravel()) == {9}
    assert T.Pad(1, value=7).apply(x)[0, 0].tolist() == [7, 7, 7]
    as_float = T.Pad(1, value=0.5).apply(x)
    assert as_float.dtype == np.float32 and as_float[0, 0].tolist() == [0.5] * 3


def _padded(x):
    out = np.empty((3, 4, 3), np.uint8)
    out[...] = (1, 2, 3)
    out[1:, :2] = x
    return out


@pytest.mark.parametrize(("size", "shape"), [(20, (20, 28)), (74, (74, 106)), ((5, 90), (5, 90))])
def test_resize_shape(size, shape, engine):
    assert T.Resize(size).apply(image()).shape == (*shape, 3)
    assert T.Resize(size).apply(image(channels=1)).shape == (*shape, 1)


def test_resize_linear_keeps_a_slope(engine):
    slope = np.tile(np.linspace(0, 200, 41, dtype=np.float32)[None, :, None], (10, 1, 1))
    got = T.Resize((10, 82)).apply(slope)
    at = np.clip((np.arange(82) + 0.5) / 2 - 0.5, 0, 40)
    np.testing.assert_allclose(got[3, :, 0], at * 5, atol=1e-3)


def test_resize_numpy_is_near_opencv(monkeypatch):
    pytest.importorskip("cv2")
    for dtype, off in ((np.uint8, 1), (np.float32, 1e-3)):
        x = image(dtype=dtype)
        for size in ((20, 31), (80, 90), (37, 53)):
            for interpolation in (0, 1):
                real = VF.resize(x, size, interpolation)
                with monkeypatch.context() as m:
                    m.setitem(_image._modules, "cv2", None)
                    ours = VF.resize(x, size, interpolation)
                assert ours.dtype == dtype
                assert np.abs(ours.astype(float) - real).max() <= (off if interpolation else 0)


def test_other_interpolation_needs_opencv(monkeypatch):
    monkeypatch.setitem(_image._modules, "cv2", None)
    with pytest.raises(ImportError, match=r"resize: interpolation 2: needs OpenCV.*megengine\[vision\]"):
        T.Resize(20, interpolation=2).apply(image())


def test_shortest_edge_resize(engine):
    assert T.ShortestEdgeResize(20, 40).apply(image()).shape == (20, 29, 3)
    assert T.ShortestEdgeResize(37, 40).apply(image()).shape == (28, 40, 3)  # the long edge is the limit
    sizes = {T.ShortestEdgeResize((20, 22), 99).apply(image()).shape[0] for _ in range(60)}
    assert sizes == {20, 21, 22}
    sizes = {T.ShortestEdgeResize((20, 30), 99, "choice").apply(image()).shape[0] for _ in range(30)}
    assert sizes == {20, 30}


def test_random_resize(engine):
    shapes = {T.RandomResize((0.5, 2.0)).apply(image()).shape[:2] for _ in range(20)}
    assert len(shapes) > 5
    assert all(18 <= h <= 74 and abs(w / h - 53 / 37) < 0.08 for h, w in shapes)


def test_crops_are_parts_of_the_image():
    x = image()
    for _ in range(20):
        out, corner = T.RandomCrop((8, 9), order=("image", "coords")).apply((x, np.zeros((1, 2))))
        left, top = (-corner[0]).astype(int)
        np.testing.assert_array_equal(out, x[top : top + 8, left : left + 9])
    corners = [
        tuple(T.RandomCrop(36, order=("image", "coords")).apply((x, np.zeros((1, 2))))[1][0]) for _ in range(300)
    ]
    assert {c[0] for c in corners} == {-float(i) for i in range(18)}  # every place can be drawn
    np.testing.assert_array_equal(T.CenterCrop((3, 5)).apply(x), x[17:20, 24:29])


def test_random_crop_pads_what_is_missing():
    out, mask = T.RandomCrop((40, 60), padding_value=[1, 2, 3], padding_maskvalue=9, order=("image", "mask")).apply(
        (image(), image()[:, :, :1])
    )
    assert out.shape == (40, 60, 3) and out[-1, -1].tolist() == [1, 2, 3] and mask[-1, -1] == 9


def test_random_resized_crop(engine):
    assert T.RandomResizedCrop((24, 30)).apply(image()).shape == (24, 30, 3)
    # no window is that large: the largest of the allowed shapes, in the middle
    t = T.RandomResizedCrop((10, 10), scale_range=(2.0, 3.0), order=("image", "coords"))
    corners = t.apply((image(), np.array([[2.0, 0], [51.0, 37]])))[1]
    np.testing.assert_allclose(corners, [[0, 0], [10, 10]])


def test_flip_probability():
    x = image()
    np.random.seed(0)
    flipped = sum(not np.array_equal(T.RandomHorizontalFlip(0.25).apply(x), x) for _ in range(400))
    assert 60 < flipped < 140
    np.testing.assert_array_equal(T.RandomHorizontalFlip(1).apply(x), x[:, ::-1])
    np.testing.assert_array_equal(T.RandomVerticalFlip(1).apply(x), x[::-1])


def test_normalize():
    x = image()
    out = T.Normalize(mean=[103.5, 116.3, 123.7], std=[57.4, 57.1, 58.4]).apply(x)
    want = (x.astype(np.float64) - [103.5, 116.3, 123.7]) / [57.4, 57.1, 58.4]
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="std must not be 0"):
        T.Normalize(std=[1, 0, 1])


def test_gaussian_noise():
    np.random.seed(0)
    x = np.full((100, 100, 3), 128, np.uint8)
    out = T.GaussianNoise(0.1, 0.05).apply(x)
    assert out.dtype == np.uint8
    assert out.mean() == pytest.approx(128 + 25.5, abs=1) and out.std() == pytest.approx(12.75, abs=0.5)


def test_brightness_contrast_saturation():
    x = image()
    gray = x.astype(np.float64) @ [0.114, 0.587, 0.299]
    for seed in range(3):
        for kind, other in (
            (T.BrightnessTransform, 0.0),
            (T.ContrastTransform, gray.mean()),
            (T.SaturationTransform, gray[:, :, None]),
        ):
            np.random.seed(seed)
            weight = np.random.uniform(0.6, 1.4)
            np.random.seed(seed)
            got = kind(0.4).apply(x)
            want = np.clip(x * weight + other * (1 - weight), 0, 255)
            assert got.dtype == np.uint8
            assert np.abs(got - want).max() <= 1.0001  # cut to whole numbers
            assert kind(0).apply(x) is x


def test_hue(engine):
    primary = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [90, 90, 90]]], np.uint8)
    third = VF.rotate_hue(primary, 1 / 3)  # blue to red, red to green, green to blue; grey stays
    want = np.array([[[0, 0, 255], [255, 0, 0], [0, 255, 0], [90, 90, 90]]])
    assert np.abs(third.astype(int) - want).max() <= 6
    assert T.HueTransform(0.5).apply(image()).dtype == np.uint8


def test_hue_numpy_is_near_opencv():
    cv2 = pytest.importorskip("cv2")
    del cv2
    x = image()
    for turn in (0.1, -0.3, 0.45):
        step = np.uint8(int(turn * 255) % 256)
        off = np.abs(VF.rotate_hue(x, turn).astype(int) - VF._rotate_hue_numpy(x, step))
        assert off.mean() < 0.05 and off.max() <= 6  # one step of hue, where rounding is a tie


def test_color_jitter(engine):
    x = image()
    np.random.seed(1)
    out = T.ColorJitter(0.4, 0.4, 0.4, 0.2, order=ORDER).apply((x, *dot()[1:]))
    assert out[0].shape == x.shape and not np.array_equal(out[0], x)
    assert T.ColorJitter().apply(x) is x


def test_lighting():
    np.random.seed(1)
    flat = np.full((2, 2, 3), 100.0, np.float32)
    shift = T.Lighting(1.0).apply(flat) - flat
    assert np.ptp(shift, axis=(0, 1)).max() < 1e-4 and np.abs(shift).max() > 1  # one shift for all pixels
    # weights (1, 0, 0) shift along the first principal colour
    t = T.Lighting(1.0)
    np.testing.assert_allclose(t.eigvec.T @ t.eigvec, np.eye(3), atol=2e-3)


def test_compose_order_and_shuffle():
    seen = []

    class Note(T.VisionTransform):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def apply(self, input):
            seen.append(self.name)
            return input

    T.Compose([Note("a"), Note("b")]).apply(image())
    assert seen == ["a", "b"]
    orders = set()
    for _ in range(60):
        seen.clear()
        T.Compose([Note("a"), Note("b"), Note("c"), Note("d")], shuffle_indices=[(1, 2, 4)]).apply(image())
        orders.add("".join(seen))
    assert len(orders) == 6 and all(o[2] == "c" for o in orders)
    seen.clear()
    T.Compose([Note("a"), Note("b")], batch_compose=True).apply_batch([image(), image()])
    assert seen == ["a", "a", "b", "b"]


def test_torch_transforms():
    pytest.importorskip("PIL")
    x = image()
    t = T.TorchTransformCompose([lambda picture: picture.rotate(180), lambda p: p.crop((0, 0, 5, 4))])
    np.testing.assert_array_equal(t.apply(x), x[::-1, ::-1][:4, :5])


def test_opencv_in_workers_after_opencv_here():
    """OpenCV's threads do not survive a fork; a worker that waited for them would hang."""
    pytest.importorskip("cv2")
    large = np.zeros((1500, 2000, 3), np.uint8)
    VF.resize(large, (1000, 1000))  # starts the threads
    data = ArrayDataset([large] * 4)
    batches = DataLoader(data, SequentialSampler(data, 2), T.Resize((600, 700)), num_workers=2, timeout=30)
    assert [b.shape for b in batches] == [(2, 600, 700, 3)] * 2


# ---- functions


def test_gray_and_bgr():
    x = image()
    want = np.rint(x.astype(np.float64) @ [0.114, 0.587, 0.299])
    got = VF.to_gray(x)
    assert got.shape == (37, 53, 1) and np.abs(got[:, :, 0] - want).max() <= 1
    np.testing.assert_array_equal(VF.to_bgr(got), np.repeat(got, 3, axis=2))
    cv2 = pytest.importorskip("cv2")
    np.testing.assert_array_equal(got[:, :, 0], cv2.cvtColor(x, cv2.COLOR_BGR2GRAY))


def test_flip_codes():
    x = image()
    for code, want in ((0, x[::-1]), (1, x[:, ::-1]), (-1, x[::-1, ::-1])):
        np.testing.assert_array_equal(VF.flip(x, code), want)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: T.ToMode("HWC"), AssertionError, "unsupported mode: HWC"),
        (lambda: T.Pad("a"), ValueError, "four pad sizes"),
        (lambda: T.Pad((1, 2, 3)), ValueError, "four pad sizes"),
        (lambda: T.Resize((1, 2, 3)), ValueError, "Resize: a size is"),
        (lambda: T.BrightnessTransform(-1), ValueError, "brightness value should be non-negative"),
        (lambda: T.HueTransform(0.7), ValueError, "hue value should be in"),
        (lambda: T.Lighting(-1), ValueError, "lighting scale"),
        (lambda: T.ShortestEdgeResize(1, 2, "foo"), NotImplementedError, "foo is unsupported sample style"),
        (lambda: T.RandomResizedCrop(5, scale_range=(2, 1)), AssertionError, "scale_range"),
        (lambda: T.VisionTransform(5), ValueError, "order should be a sequence"),
        (lambda: T.VisionTransform(("batch",)), ValueError, "batch is invalid data type"),
        (lambda: T.Pad(order=("image", "foo")), NotImplementedError, "foo is unsupported data type"),
        (lambda: T.Compose([5]), TypeError, "needs transforms"),
        (lambda: T.Compose([T.Pad()], True, [(1,)]), ValueError, "Do not support shuffle"),
        (lambda: T.Compose([T.Pad()], shuffle_indices=[(1, 5)]), IndexError, "got 5"),
        (lambda: T.CenterCrop(99).apply(image()), AssertionError, "output size is bigger.*99x99 of 37x53"),
        (lambda: T.Resize(9).apply(image()[:, :, 0]), ValueError, "image must have 3 dims, but got 2"),
        (lambda: T.RandomHorizontalFlip(order=("boxes",)).apply(np.zeros((1, 4))), ValueError, "needs an image"),
        (lambda: T.ContrastTransform(1).apply(image(channels=1)), ValueError, "needs 3 channels"),
        (lambda: VF.resize(image(), (0, 5)), ValueError, "both positive"),
    ],
)
def test_bad_arguments(make, error, text):
    with pytest.raises(error, match=text):
        make()


# ---- the fast ways give what the plain ones give


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32", "float64"])
@pytest.mark.parametrize("per_channel", [True, False])
def test_normalize_is_the_formula(channels, dtype, per_channel):
    rng = np.random.RandomState(channels)
    image = rng.randint(0, 255, (9, 6, channels)).astype(dtype)
    mean, std = (rng.uniform(1, 9, channels), rng.uniform(2, 5, channels)) if per_channel else (3.5, 1.7)
    view = image[1:, ::-1]
    got = T.Normalize(mean, std).apply(view)
    want = (view - np.float32(mean)) / np.float32(std)
    assert got.dtype == (np.float64 if dtype in ("int32", "float64") else np.float32) and got.shape == want.shape
    np.testing.assert_array_equal(got, want)
    chw = T.ToMode("CHW").apply(got)
    assert chw.flags.c_contiguous and np.shares_memory(chw, got)  # the planes are where they should be


def test_normalize_of_what_is_no_image():
    flat = np.arange(12, dtype="float32").reshape(3, 4)
    np.testing.assert_array_equal(T.Normalize(1.0, 2.0).apply(flat), (flat - 1) / 2)
    cube = np.ones((2, 3, 4), "float32")
    per_pixel = np.arange(12, dtype="float32").reshape(3, 4)
    np.testing.assert_array_equal(T.Normalize(per_pixel, 2.0).apply(cube), (cube - per_pixel) / 2)
    with pytest.raises(ValueError, match="broadcast"):
        T.Normalize([1.0, 2.0], 1.0).apply(cube)


@pytest.mark.parametrize("code, axes", [(0, (0,)), (1, (1,)), (-1, (0, 1))])
@pytest.mark.parametrize("channels", [1, 3, 6])
def test_flip_is_a_contiguous_copy(code, axes, channels):
    image = np.random.RandomState(0).randint(0, 255, (5, 8, channels)).astype("uint8")
    got = VF.flip(image[:, 1:], code)
    np.testing.assert_array_equal(got, np.flip(image[:, 1:], axes))
    assert got.flags.c_contiguous and not np.shares_memory(got, image)


@pytest.mark.parametrize("value", [7, [7], [7, 7, 7], [1, 2, 3], (1, 2, 3, 9), np.array([1, 2, 3])])
def test_values_of_a_border(value):
    image = np.random.RandomState(0).randint(0, 255, (4, 5, 3)).astype("uint8")
    got = VF.pad(image, (1, 2, 3, 0), value)
    want = np.empty((7, 8, 3), "uint8")
    want[...] = np.asarray(value)[:3] if np.ndim(value) else value
    want[1:5, 3:] = image
    np.testing.assert_array_equal(got, want)


def test_a_transform_of_ones_own():
    """What subclasses written for MegEngine rely on: _get_image finds the image, _get_apply may know further kinds."""

    class Brighter(T.VisionTransform):
        def apply(self, input):
            self.seen = self._get_image(input).shape
            return super().apply(input)

        def _get_apply(self, kind):
            return (lambda x: x * 10) if kind == "depth" else super()._get_apply(kind)

        def _apply_image(self, image):
            return image + 1

    own = Brighter(order=("depth", "image", "info"))
    depth, image, info = own.apply((np.ones((2, 3)), np.zeros((2, 3, 3), "uint8"), "note"))
    assert own.seen == (2, 3, 3) and info == "note"
    assert (depth == 10).all() and (image == 1).all()
    assert T.Pad(1)._get_apply("boxes").__name__ == "_apply_boxes" and T.Pad(1)._get_apply("depth") is None
