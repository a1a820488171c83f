"""Datasets on small files of the real formats, and on damaged ones."""

from __future__ import annotations

import gzip
import http.server
import io
import json
import os
import pickle
import tarfile
import threading

import data_files
import numpy as np
import pytest

from megengine.data import DataLoader, SequentialSampler, _image
from megengine.data.dataset import (
    CIFAR10,
    CIFAR100,
    COCO,
    MNIST,
    Cityscapes,
    ImageFolder,
    ImageNet,
    Objects365,
    PascalVOC,
    VisionDataset,
)
from megengine.data.dataset.vision import utils
from megengine.data.dataset.vision.mnist import parse_idx1, parse_idx3


@pytest.fixture
def cv2():
    return pytest.importorskip("cv2")


def near(image, seed):
    """JPEG changes the values a little."""
    assert image.dtype == np.uint8
    assert np.abs(image.astype(int) - data_files.picture(seed)).mean() < 6


@pytest.fixture
def server(tmp_path):
    """A web server for a folder; downloads need nothing from outside."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{running.server_address[1]}/"
        running.shutdown()


# ---- MNIST


def test_mnist(tmp_path):
    arrays = data_files.write_mnist(tmp_path)
    for train, half in ((True, "train"), (False, "t10k")):
        data = MNIST(str(tmp_path), train=train, download=False)
        images, labels = arrays[f"{half}-images-idx3-ubyte.gz"], arrays[f"{half}-labels-idx1-ubyte.gz"]
        assert len(data) == len(images)
        for i, (image, label) in enumerate(zip(images, labels)):
            np.testing.assert_array_equal(data[i][0], image[:, :, None])
            assert data[i][1] == label and data[i][1].dtype == np.int32
        assert data.meta["images"] == {"magic": 2051, "imgs": len(images), "height": 28, "width": 28}
        assert data.meta["labels"] == {"magic": 2049, "imgs": len(images)}


def test_mnist_download(tmp_path, server, monkeypatch):
    folder, url = server
    data_files.write_mnist(folder)
    monkeypatch.setattr(MNIST, "url_path", url)
    monkeypatch.setattr(MNIST, "raw_file_md5", [data_files.md5(folder / n) for n in MNIST.raw_file_name])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert len(MNIST()) == 7
    assert sorted(os.listdir(tmp_path / "cache" / "megengine" / "MNIST")) == sorted(MNIST.raw_file_name)
    # a damaged file is fetched again
    (tmp_path / "cache" / "megengine" / "MNIST" / MNIST.raw_file_name[0]).write_bytes(b"damaged")
    assert len(MNIST()) == 7


def test_download_keeps_nothing_damaged(tmp_path, server):
    folder, url = server
    (folder / "file").write_bytes(b"content")
    with pytest.raises(RuntimeError, match=r"file: arrived damaged; its MD5 sum is \w+, not 0000"):
        utils.load_raw_data_from_url(url, "file", "0000", str(tmp_path / "to"))
    with pytest.raises(RuntimeError, match="missing: cannot be downloaded: .*404"):
        utils.load_raw_data_from_url(url, "missing", "0000", str(tmp_path / "to"))
    assert os.listdir(tmp_path / "to") == []


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda raw: b"no gzip", "cannot be unpacked"),
        (lambda raw: raw[: len(raw) // 2], "cannot be unpacked"),
        (lambda raw: gzip.compress(gzip.decompress(raw)[:-5]), "the header promises 5488 bytes"),
        (lambda raw: gzip.compress(gzip.decompress(raw) + b"x"), "the header promises 5488 bytes"),
        (lambda raw: gzip.compress(b"\0\0\x08\x01" + gzip.decompress(raw)[4:]), "the magic number is 2049, not 2051"),
        (lambda raw: gzip.compress(b"\0\0"), "too short"),
        (lambda raw: gzip.compress(b"\0\0\x08\x03" + b"\xff" * 12), "the header promises"),
    ],
)
def test_mnist_damaged(tmp_path, damage, text):
    data_files.write_mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=f"train-images-idx3-ubyte.gz: .*{text}"):
        MNIST(str(tmp_path), download=False)


def test_mnist_halves_that_do_not_match(tmp_path):
    data_files.write_mnist(tmp_path)
    labels = data_files.idx(np.zeros(5, np.uint8))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    with pytest.raises(ValueError, match="7 images .* but 5 labels"):
        MNIST(str(tmp_path), download=False)
    with pytest.raises(ValueError, match="does not exist"):
        MNIST(str(tmp_path / "nowhere"), download=False)
    os.remove(tmp_path / "train-images-idx3-ubyte.gz")
    with pytest.raises(ValueError, match="is not there; set download=True"):
        MNIST(str(tmp_path), download=False)


def test_parse_idx(tmp_path):
    arrays = data_files.write_mnist(tmp_path)
    images = parse_idx3(str(tmp_path / "t10k-images-idx3-ubyte.gz"))[1]
    np.testing.assert_array_equal(images[..., 0], arrays["t10k-images-idx3-ubyte.gz"])
    assert parse_idx1(str(tmp_path / "t10k-labels-idx1-ubyte.gz"))[1].dtype == np.int32


# ---- CIFAR


def bgr(rows):
    return np.stack([rows[:, 2048:], rows[:, 1024:2048], rows[:, :1024]], axis=-1).reshape(-1, 32, 32, 3)


def test_cifar10(tmp_path):
    contents = data_files.write_cifar(tmp_path, fine=False)
    train = CIFAR10(str(tmp_path), download=False)  # unpacks the archive
    images = np.concatenate([bgr(contents[name]["data"]) for name in CIFAR10.train_batch])
    labels = sum((contents[name]["labels"] for name in CIFAR10.train_batch), [])
    assert len(train) == 20
    np.testing.assert_array_equal(np.stack([train[i][0] for i in range(20)]), images)
    assert [train[i][1] for i in range(20)] == labels and train[0][1].dtype == np.int32
    assert train.meta["label_names"][9] == "l9"
    test = CIFAR10(str(tmp_path), train=False, download=False)
    np.testing.assert_array_equal(test[3][0], bgr(contents["test_batch"]["data"])[3])


def test_cifar100(tmp_path):
    contents = data_files.write_cifar(tmp_path, fine=True)
    data = CIFAR100(str(tmp_path), train=False, download=False)
    assert [tuple(map(int, data[i][1:])) for i in range(4)] == list(
        zip(contents["test"]["fine_labels"], contents["test"]["coarse_labels"])
    )
    assert len(data.meta["coarse_label_names"]) == 20


def test_cifar_download(tmp_path, server, monkeypatch):
    folder, url = server
    data_files.write_cifar(folder, fine=False)
    monkeypatch.setattr(CIFAR10, "url_path", url)
    monkeypatch.setattr(CIFAR10, "raw_file_md5", data_files.md5(folder / CIFAR10.raw_file_name))
    assert len(CIFAR10(str(tmp_path / "to"))) == 20
    with pytest.raises(ValueError, match="please set download=True"):
        CIFAR10(str(tmp_path / "nowhere"), download=False)


class Evil:
    def __reduce__(self):
        return os.system, ("echo should not run",)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (pickle.dumps({b"data": Evil(), b"labels": []}), "system"),
        (pickle.dumps([1, 2]), "it holds a list, not a dict"),
        (pickle.dumps({b"labels": [1]}), r"has no 'data'; its keys are \['labels'\]"),
        (
            pickle.dumps({b"data": np.zeros((2, 5), np.uint8), b"labels": [1, 2]}),
            r"uint8 \[N, 3072\]; got uint8 \[2, 5\]",
        ),
        (pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}), "2 images but 1 labels"),
        (b"\x80\x04damaged", "not a CIFAR file, or damaged"),
        (b"", "not a CIFAR file, or damaged"),
    ],
)
def test_cifar_damaged(tmp_path, content, text):
    data_files.write_cifar(tmp_path, fine=False)
    CIFAR10(str(tmp_path), download=False)
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").write_bytes(content)
    with pytest.raises(ValueError, match=f"data_batch_3: .*{text}"):
        CIFAR10(str(tmp_path), download=False)


def test_archives_cannot_write_outside(tmp_path):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        info = tarfile.TarInfo("../outside.txt")
        info.size = 1
        tar.addfile(info, io.BytesIO(b"x"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.tar.gz").write_bytes(data.getvalue())
    with pytest.raises(RuntimeError, match="a.tar.gz: cannot be unpacked"):
        utils.untargz(str(tmp_path / "in" / "a.tar.gz"))
    assert not (tmp_path / "outside.txt").exists()
    (tmp_path / "in" / "b.tar").write_bytes(b"no archive")
    with pytest.raises(RuntimeError, match="b.tar: cannot be unpacked"):
        utils.untar(str(tmp_path / "in" / "b.tar"))


# ---- folders and image files


def test_image_folder(tmp_path, cv2):
    for name in ("b/1.jpg", "a/2.png", "a/1.bmp", "a/deep/3.JPEG"):
        data_files.write_image(tmp_path / name, data_files.picture(len(name)))
    (tmp_path / "a" / "readme.txt").write_text("no image")
    data = ImageFolder(str(tmp_path))
    assert data.class_dict == {"a": 0, "b": 1}
    assert [(os.path.relpath(p, tmp_path), int(c)) for p, c in data.samples] == [
        ("a/1.bmp", 0),
        ("a/2.png", 0),
        ("a/deep/3.JPEG", 0),
        ("b/1.jpg", 1),
    ]
    image, label = data[1]
    np.testing.assert_array_equal(image, data_files.picture(7))  # PNG keeps every value, BGR stays BGR
    assert label.dtype == np.int32
    assert ImageFolder(str(tmp_path), class_name=True)[3][1] == "b"
    assert len(ImageFolder(str(tmp_path), check_valid_func=lambda p: p.endswith("bmp"))) == 1
    with pytest.raises(FileNotFoundError):
        ImageFolder(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("decoder", ["cv2", "PIL.Image"])
def test_decoders_agree(tmp_path, cv2, decoder, monkeypatch):
    pytest.importorskip("PIL")
    paths = [data_files.write_image(tmp_path / f"x.{e}", data_files.picture(1)) for e in ("png", "bmp", "jpg")]
    labels = data_files.write_image(tmp_path / "gray.png", data_files.picture(1)[:, :, 0])
    monkeypatch.setitem(_image._modules, "PIL.Image" if decoder == "cv2" else "cv2", None)
    np.testing.assert_array_equal(_image.read_image(str(paths[0])), data_files.picture(1))
    np.testing.assert_array_equal(_image.read_image(str(paths[1])), data_files.picture(1))
    near(_image.read_image(str(paths[2])), 1)
    np.testing.assert_array_equal(_image.read_labels(str(labels)), data_files.picture(1)[:, :, 0])
    assert _image.read_image(str(labels)).shape == (20, 30, 3)


def test_no_decoder(tmp_path, cv2, monkeypatch):
    path = data_files.write_image(tmp_path / "x.png", data_files.picture(1))
    for name in ("cv2", "PIL.Image"):
        monkeypatch.setitem(_image._modules, name, None)
    with pytest.raises(ImportError, match=r"needs OpenCV or Pillow. pip install 'megengine\[vision\]'"):
        _image.read_image(str(path))


def flip_byte(raw):
    at = len(raw) // 2
    return raw[:at] + bytes([raw[at] ^ 0xFF]) + raw[at + 1 :]


@pytest.mark.parametrize("decoder", ["cv2", "PIL.Image"])
@pytest.mark.parametrize(
    ("ending", "damage", "text"),
    [
        ("jpg", lambda raw: raw[: len(raw) // 2], "JPEG data is cut short"),
        ("jpg", lambda raw: raw[:-2], "JPEG data is cut short"),
        ("jpg", lambda raw: raw[:20], "JPEG data is cut short"),
        ("png", lambda raw: raw[: len(raw) // 2], "PNG data is cut short"),
        ("png", flip_byte, "PNG data is damaged"),
        ("jpg", lambda raw: b"", "not an image"),
        ("jpg", lambda raw: b"<html>not found</html>", "not an image"),
        ("bmp", lambda raw: raw[:30], "not an image"),
    ],
)
def test_damaged_image_is_an_error_that_names_the_file(tmp_path, cv2, decoder, ending, damage, text, monkeypatch):
    pytest.importorskip("PIL")
    monkeypatch.setitem(_image._modules, "PIL.Image" if decoder == "cv2" else "cv2", None)
    path = data_files.write_image(tmp_path / "a" / f"x.{ending}", data_files.picture(1, 60, 80))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=rf"x\.{ending}: .*{text}"):
        ImageFolder(str(tmp_path))[0]


def test_trailing_bytes_after_an_image_are_fine(tmp_path, cv2):
    path = data_files.write_image(tmp_path / "a" / "x.jpg", data_files.picture(1))
    path.write_bytes(path.read_bytes() + b"camera notes")
    near(ImageFolder(str(tmp_path))[0][0], 1)


def test_damaged_image_in_a_worker_names_file_and_sample(tmp_path, cv2):
    for i in range(6):
        data_files.write_image(tmp_path / "a" / f"{i}.jpg", data_files.picture(i))
    path = tmp_path / "a" / "3.jpg"
    path.write_bytes(path.read_bytes()[:200])
    data = ImageFolder(str(tmp_path))
    batches = iter(DataLoader(data, SequentialSampler(data, 2), num_workers=2))
    assert next(batches)[0].shape == (2, 20, 30, 3)
    with pytest.raises(RuntimeError, match="Caught ValueError") as caught:
        next(batches)
    assert str(path) in str(caught.value) and "reading sample 3 of batch 1" in str(caught.value)
    assert len(list(batches)) == 1


# ---- ImageNet


@pytest.fixture
def imagenet(tmp_path, cv2, monkeypatch):
    data_files.write_imagenet_archives(tmp_path)
    sums = {kind: (name, data_files.md5(tmp_path / name)) for kind, (name, _) in ImageNet.raw_file_meta.items()}
    monkeypatch.setattr(ImageNet, "raw_file_meta", sums)
    return tmp_path


def test_imagenet_from_archives(imagenet):
    train = ImageNet(str(imagenet))
    assert len(train) == 4 and train.class_dict == {"n01440764": 0, "n01443537": 1}
    near(train[3][0], 11)
    assert [int(train[i][1]) for i in range(4)] == [0, 0, 1, 1]
    val = ImageNet(str(imagenet), train=False)
    assert val.valid_ground_truth == [2, 1, 2]
    assert [(os.path.basename(p), int(c)) for p, c in val.samples] == [
        ("ILSVRC2012_val_00000002.JPEG", 0),
        ("ILSVRC2012_val_00000001.JPEG", 1),
        ("ILSVRC2012_val_00000003.JPEG", 1),
    ]
    near(val[0][0], 51)
    numbers, words = val.meta
    assert numbers == {1: "n01440764", 2: "n01443537"}  # not the inner node of WordNet
    assert words["n01443537"] == ("goldfish", "Carassius auratus")
    assert val.check_raw_file()


def test_imagenet_already_unpacked(imagenet):
    ImageNet(str(imagenet))
    for archive in imagenet.glob("*.tar*"):
        archive.unlink()
    again = ImageNet(str(imagenet))
    assert len(again) == 4 and not again.check_raw_file()
    with pytest.raises(FileNotFoundError, match=r"ILSVRC2012_img_val.tar is not there; get it from"):
        ImageNet(str(imagenet), train=False)


def test_imagenet_damaged(imagenet):
    archive = imagenet / "ILSVRC2012_img_train.tar"
    archive.write_bytes(archive.read_bytes()[:-100])
    with pytest.raises(RuntimeError, match="ILSVRC2012_img_train.tar is damaged; its MD5 sum"):
        ImageNet(str(imagenet))
    assert not (imagenet / "train").exists()
    val = ImageNet(str(imagenet), train=False)
    mat = imagenet / "ILSVRC2012_devkit_t12" / "data" / "meta.mat"
    whole = mat.read_bytes()
    for damaged in (whole[:200], b"text", whole[:128], flip_byte(whole)):
        mat.write_bytes(damaged)
        with pytest.raises(ValueError, match="meta.mat: not a MATLAB 5 file"):
            _ = val.meta
    with pytest.raises(FileNotFoundError, match="does not exist"):
        ImageNet(str(imagenet / "nowhere"))


def test_imagenet_interrupted_unpacking_starts_again(imagenet, monkeypatch):
    from megengine.data.dataset.vision import imagenet as module

    def interrupted(path, to=None, remove=False):
        utils.untar(path, to, remove)
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(module, "untar", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ImageNet(str(imagenet))
    assert len(ImageNet(str(imagenet))) == 4


# ---- VOC


def test_voc_boxes(tmp_path, cv2):
    data_files.write_voc(tmp_path)
    data = PascalVOC(str(tmp_path), "train", order=("image", "boxes", "boxes_category", "info"))
    image, boxes, category, info = data[0]
    assert len(data) == 2
    near(image, 0)
    np.testing.assert_array_equal(boxes, np.array([[3, 4, 15, 18], [1, 1, 30, 20]], np.float32))
    assert [data.class_names[c - 1] for c in category] == ["dog", "person"]
    assert category.dtype == np.int32 and boxes.dtype == np.float32
    assert info == [20, 30, "2007_000001"]
    assert data.get_img_info(1) == {"height": 20, "width": 30, "file_name": "2007_000002"}


def test_voc_mask(tmp_path, cv2):
    data_files.write_voc(tmp_path)
    mask = PascalVOC(str(tmp_path), "train", order=("mask",))[0][0]
    want = np.zeros((20, 30, 1), np.uint8)
    want[2:8, 3:9], want[10:15, 4:20], want[18:] = 1, 20, 255
    np.testing.assert_array_equal(mask, want)
    assert PascalVOC.class_colors[:4] == [[0, 0, 0], [0, 0, 128], [0, 128, 0], [0, 128, 128]]
    assert PascalVOC.class_colors[20] == [128, 64, 0]


def test_voc_bad(tmp_path, cv2):
    data_files.write_voc(tmp_path)
    with pytest.raises(ValueError, match="not both"):
        PascalVOC(str(tmp_path), "train", order=("boxes", "mask"))
    with pytest.raises(NotImplementedError, match="foo is unsupported"):
        PascalVOC(str(tmp_path), "train", order=("foo",))
    with pytest.raises(FileNotFoundError, match="no image set 'val'"):
        PascalVOC(str(tmp_path), "val")
    data = PascalVOC(str(tmp_path), "train", order=("boxes",))
    path = tmp_path / "Annotations" / "2007_000001.xml"
    whole = path.read_text()
    for damaged in (whole[:100], whole.replace("<xmin>3", "<xmin>x"), whole.replace("dog", "unicorn"), ""):
        path.write_text(damaged)
        with pytest.raises(ValueError, match="2007_000001.xml: not an annotation of VOC, or damaged"):
            data[0]


# ---- COCO and Objects365


def test_coco(tmp_path, cv2):
    path = data_files.write_coco(tmp_path)
    order = ("image", "boxes", "boxes_category", "keypoints", "info")
    data = COCO(str(tmp_path / "images"), str(path), order=order)
    assert data.ids == [11, 12, 13]
    image, boxes, category, keypoints, info = data[0]
    near(image, 1)
    np.testing.assert_array_equal(boxes, np.array([[2, 3, 12, 11], [0, 0, 5, 5]], np.float32))
    assert category.tolist() == [1, 2] and category.dtype == np.int32  # contiguous, in the order of the ids
    assert keypoints.shape == (2, 17, 3) and keypoints[0, 0].tolist() == [5, 6, 2]
    assert info == [20, 30, "000000000011.jpg"]
    empty = data[2]
    assert empty[1].shape == (0, 4) and empty[2].shape == (0,) and empty[3].shape == (0, 17, 3)
    assert data.contiguous_category_id_to_json_id == {1: 1, 2: 18, 3: 90}


@pytest.mark.parametrize("order", [("image", "boxes"), ("image", "keypoints"), None])
def test_coco_without_empty_images(tmp_path, cv2, order):
    path = data_files.write_coco(tmp_path)
    assert COCO(str(tmp_path / "images"), str(path), True, order=order).ids == [11]  # 12 has only a crowd


def test_objects365(tmp_path, cv2):
    path = data_files.write_coco(tmp_path)
    data = Objects365(str(tmp_path / "images"), str(path), order=("boxes", "boxes_category", "info"))
    assert data[1][1].tolist() == [3] and data.get_img_info(1)["id"] == 12
    assert len(Objects365.class_names) == 365 and len(COCO.class_names) == len(COCO.classes_originID) == 80
    with pytest.raises(NotImplementedError, match="keypoints is unsupported"):
        Objects365(str(tmp_path / "images"), str(path), order=("keypoints",))


def without(table, key):
    document = data_files.coco_document()
    del document[table][0][key]
    return json.dumps(document)


def replaced(key, value):
    document = data_files.coco_document()
    document["annotations"][0][key] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", "not a JSON file"),
        ("[]", "it has no list 'images'"),
        ('{"images": []}', "it has no list 'annotations'"),
        (without("images", "file_name"), r"images\[0\] has no 'file_name'"),
        (without("annotations", "bbox"), r"annotations\[0\] has no 'bbox'"),
        (replaced("bbox", [1, 2, 3]), r"the bbox of annotations\[0\]"),
        (replaced("category_id", 5), "category 5, which is not listed"),
    ],
)
def test_coco_damaged(tmp_path, text, error):
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"broken.json: .*{error}"):
        COCO(str(tmp_path), str(path))


# ---- Cityscapes


def test_cityscapes(tmp_path, cv2):
    data_files.write_cityscapes(tmp_path)
    data = Cityscapes(str(tmp_path), "train", "gtFine", order=("image", "mask", "info"))
    assert len(data) == 2
    image, mask, info = data[1]
    np.testing.assert_array_equal(image, data_files.picture(3))
    want = np.full((20, 30, 1), 255, np.uint8)
    want[:5], want[5:10], want[10:12] = 0, 13, 18
    np.testing.assert_array_equal(mask, want)
    assert [data.class_names[i] for i in (0, 13, 18)] == ["road", "car", "bicycle"]
    assert info[:2] == [20, 30] and info[2].endswith("bochum_000001_000019_leftImg8bit.png")


def test_cityscapes_bad(tmp_path, cv2):
    data_files.write_cityscapes(tmp_path)
    with pytest.raises(ValueError, match="'gtFine' or 'gtCoarse'; got 'fine'"):
        Cityscapes(str(tmp_path), "train", "fine")
    with pytest.raises(FileNotFoundError, match="no image set 'val'"):
        Cityscapes(str(tmp_path), "val", "gtFine")
    os.remove(tmp_path / "gtFine" / "train" / "aachen" / "aachen_000000_000019_gtFine_labelIds.png")
    with pytest.raises(FileNotFoundError, match="aachen.*is not there, though its image is"):
        Cityscapes(str(tmp_path), "train", "gtFine", order=("mask",))


def test_vision_dataset_base(tmp_path):
    assert VisionDataset(str(tmp_path)).order == ("image",)
    with pytest.raises(NotImplementedError, match="depth is unsupported"):
        VisionDataset(str(tmp_path), order=("depth",), supported_order=("image",))
    with pytest.raises(ValueError, match="should be a sequence"):
        VisionDataset(str(tmp_path), order=3)


# ---- any damage


def damaged_copies(raw, number):
    rng = np.random.RandomState(3)
    for _ in range(number):
        copy = bytearray(raw)
        for _ in range(rng.randint(1, 4)):
            at, kind = rng.randint(len(copy)), rng.randint(3)
            if kind == 0:
                copy[at] = rng.randint(256)
            elif kind == 1:
                del copy[at : at + rng.randint(1, 20)]
            else:
                copy[at:at] = rng.bytes(rng.randint(1, 8))
        yield bytes(copy)


def test_random_damage_is_a_clear_error_or_none(tmp_path, cv2):
    from megengine.data.dataset.vision._mat import read_struct_array
    from megengine.data.dataset.vision.cifar import _unpickle

    path = tmp_path / "file"

    def unpickle(raw):
        path.write_bytes(raw)
        return _unpickle(str(path))

    batch = pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [1]}, protocol=2)
    picture = data_files.picture(1)
    readers = {
        "meta.mat": (
            data_files.mat_file(data_files.imagenet_synsets()),
            lambda r: read_struct_array(r, "synsets", "file"),
        ),
        "pickle": (batch, unpickle),
        "jpg": (bytes(cv2.imencode(".jpg", picture)[1]), lambda r: _image.decode_image(r, "file")),
        "png": (bytes(cv2.imencode(".png", picture)[1]), lambda r: _image.decode_image(r, "file")),
    }
    for raw, read in readers.values():
        read(raw)
        for copy in damaged_copies(raw, 150):
            try:
                read(copy)
            except ValueError as e:
                assert "file: " in str(e)
