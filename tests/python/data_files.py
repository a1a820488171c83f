"""Small datasets in the formats of the real ones, written into a folder."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import struct
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np


def picture(seed: int, height: int = 20, width: int = 30) -> np.ndarray:
    """A smooth BGR image, so that JPEG keeps it nearly as it is."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 100 * np.sin((seed + 1) * 0.7 + c + x * 0.06 * (c + 1) + y * 0.05) for c in range(3)]
    return np.stack(planes, axis=-1).astype(np.uint8)


def write_image(path: Path, image: np.ndarray) -> Path:
    import cv2

    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), image)
    return path


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def idx(array: np.ndarray) -> bytes:
    """The IDX format of MNIST: magic 0x0000 08 ndim, sizes big-endian, bytes."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_mnist(root: Path, train: int = 7, test: int = 3) -> dict[str, np.ndarray]:
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.RandomState(0)
    arrays = {
        "train-images-idx3-ubyte.gz": rng.randint(0, 256, (train, 28, 28)).astype(np.uint8),
        "train-labels-idx1-ubyte.gz": rng.randint(0, 10, train).astype(np.uint8),
        "t10k-images-idx3-ubyte.gz": rng.randint(0, 256, (test, 28, 28)).astype(np.uint8),
        "t10k-labels-idx1-ubyte.gz": rng.randint(0, 10, test).astype(np.uint8),
    }
    for name, array in arrays.items():
        (root / name).write_bytes(gzip.compress(idx(array), mtime=0))
    return arrays


def write_cifar(root: Path, fine: bool, per_file: int = 4) -> dict[str, dict[str, Any]]:
    """The Python version of CIFAR-10 (five batches) or CIFAR-100, packed as it is distributed."""
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.RandomState(1)
    folder = "cifar-100-python" if fine else "cifar-10-batches-py"
    names = ["train", "test"] if fine else [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    contents: dict[str, dict[str, Any]] = {}
    for name in names:
        one: dict[str, Any] = {"data": rng.randint(0, 256, (per_file, 3072)).astype(np.uint8)}
        if fine:
            one["fine_labels"] = rng.randint(0, 100, per_file).tolist()
            one["coarse_labels"] = rng.randint(0, 20, per_file).tolist()
        else:
            one["labels"] = rng.randint(0, 10, per_file).tolist()
        one["filenames"] = [f"{name}_{i}.png" for i in range(per_file)]
        contents[name] = one
    meta = (
        {"fine_label_names": [f"f{i}" for i in range(100)], "coarse_label_names": [f"c{i}" for i in range(20)]}
        if fine
        else {"label_names": [f"l{i}" for i in range(10)], "num_cases_per_batch": per_file, "num_vis": 3072}
    )
    archive = root / ("cifar-100-python.tar.gz" if fine else "cifar-10-python.tar.gz")
    with tarfile.open(archive, "w:gz") as tar:
        for name, one in {**contents, ("meta" if fine else "batches.meta"): meta}.items():
            data = pickle.dumps({k.encode(): v for k, v in one.items()}, protocol=2)
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return contents


def voc_xml(name: str, height: int, width: int, objects: list[tuple[str, int, list[int]]]) -> str:
    rows = "".join(
        f"<object><name>{kind}</name><pose>Left</pose><truncated>0</truncated><difficult>{difficult}</difficult>"
        f"<bndbox><xmin>{b[0]}</xmin><ymin>{b[1]}</ymin><xmax>{b[2]}</xmax><ymax>{b[3]}</ymax></bndbox></object>"
        for kind, difficult, b in objects
    )
    return (
        f"<annotation><folder>VOC2012</folder><filename>{name}.jpg</filename><size><width>{width}</width>"
        f"<height>{height}</height><depth>3</depth></size><segmented>1</segmented>{rows}</annotation>"
    )


def write_voc(root: Path) -> None:
    objects = {
        "2007_000001": [("dog", 0, [3, 4, 15, 18]), ("person", 1, [1, 1, 30, 20])],
        "2007_000002": [("tvmonitor", 0, [2, 2, 9, 9])],
    }
    colors = np.array([[0, 0, 0], [0, 0, 128], [128, 64, 0], [192, 224, 224]], np.uint8)  # BGR; the last: ignore
    for i, (name, rows) in enumerate(objects.items()):
        write_image(root / "JPEGImages" / f"{name}.jpg", picture(i))
        (root / "Annotations").mkdir(exist_ok=True)
        (root / "Annotations" / f"{name}.xml").write_text(voc_xml(name, 20, 30, rows))
        mask = np.zeros((20, 30), int)
        mask[2:8, 3:9], mask[10:15, 4:20], mask[18:, :] = 1, 2, 3
        write_image(root / "SegmentationClass" / f"{name}.png", colors[mask])
    for kind in ("Main", "Segmentation"):
        (root / "ImageSets" / kind).mkdir(parents=True, exist_ok=True)
        (root / "ImageSets" / kind / "train.txt").write_text("\n".join(objects) + "\n")


def coco_document() -> dict[str, Any]:
    """Three images: two with objects (one of them only a crowd), one without."""
    keypoints = [5, 6, 2, 0, 0, 0] + [7, 8, 1] * 15
    boxes = [(11, 5, 1, [2, 3, 10, 8]), (11, 6, 18, [0, 0, 5, 5]), (12, 7, 90, [4, 4, 6, 6])]
    return {
        "images": [
            {"id": i, "file_name": f"{i:012d}.jpg", "height": 20, "width": 30, "license": 1} for i in (12, 11, 13)
        ],
        "annotations": [
            {
                "id": ident,
                "image_id": image,
                "category_id": category,
                "bbox": box,
                "area": box[2] * box[3],
                "iscrowd": int(image == 12),
                "keypoints": keypoints,
                "num_keypoints": 16,
            }
            for image, ident, category, box in boxes
        ],
        "categories": [
            {"id": 18, "name": "dog", "supercategory": "animal"},
            {"id": 1, "name": "person", "supercategory": "person"},
            {"id": 90, "name": "toothbrush", "supercategory": "indoor"},
        ],
    }


def write_coco(root: Path, document: dict[str, Any] | None = None) -> Path:
    document = coco_document() if document is None else document
    for i, image in enumerate(document["images"]):
        write_image(root / "images" / image["file_name"], picture(i))
    path = root / "annotations.json"
    path.write_text(json.dumps(document))
    return path


def write_cityscapes(root: Path) -> None:
    for city, frame in (("aachen", "000000_000019"), ("bochum", "000001_000019")):
        stem = f"{city}_{frame}"
        write_image(root / "leftImg8bit" / "train" / city / f"{stem}_leftImg8bit.png", picture(3))
        ids = np.zeros((20, 30), np.uint8)
        ids[:5], ids[5:10], ids[10:12] = 7, 26, 33  # road, car, bicycle; 0 is unlabeled
        write_image(root / "gtFine" / "train" / city / f"{stem}_gtFine_labelIds.png", ids)
        (root / "gtFine" / "train" / city / f"{stem}_gtFine_polygons.json").write_text("{}")


# ---- ImageNet


def _mat_element(kind: int, data: bytes) -> bytes:
    return struct.pack("<II", kind, len(data)) + data + b"\0" * (-len(data) % 8)


def _mat_matrix(kind: int, dims: tuple[int, ...], body: bytes, name: str = "") -> bytes:
    head = _mat_element(6, struct.pack("<II", kind, 0)) + _mat_element(5, struct.pack(f"<{len(dims)}i", *dims))
    return _mat_element(14, head + _mat_element(1, name.encode()) + body)


def _mat_value(value: Any) -> bytes:
    if isinstance(value, str):
        return _mat_matrix(4, (1, len(value)), _mat_element(4, value.encode("utf-16-le")))
    values = np.atleast_2d(np.asarray(value, dtype=np.float64))
    return _mat_matrix(6, values.shape, _mat_element(9, values.tobytes(order="F")))


def mat_file(synsets: list[dict[str, Any]]) -> bytes:
    """A MATLAB 5 file with the struct array ``synsets``, as ImageNet's devkit has it (compressed)."""
    fields = list(synsets[0])
    width = 32
    body = struct.pack("<HHi", 5, 4, width)  # a small element: the length of field names
    body += _mat_element(1, b"".join(f.encode().ljust(width, b"\0") for f in fields))
    body += b"".join(_mat_value(s[f]) for s in synsets for f in fields)
    matrix = _mat_matrix(2, (len(synsets), 1), body, "synsets")
    packed = zlib.compress(matrix)
    head = b"MATLAB 5.0 MAT-file".ljust(116) + b"\0" * 8 + struct.pack("<H", 0x0100) + b"IM"
    return head + struct.pack("<II", 15, len(packed)) + packed


def imagenet_synsets() -> list[dict[str, Any]]:
    rows = [("n01440764", "tench, Tinca tinca"), ("n01443537", "goldfish, Carassius auratus"), ("n00001740", "entity")]
    return [
        {
            "ILSVRC2012_ID": i + 1,
            "WNID": wnid,
            "words": words,
            "gloss": "a thing",
            "num_children": 0 if i < 2 else 2,
            "children": [] if i < 2 else [1, 2],
            "wordnet_height": 0,
            "num_train_images": 2 if i < 2 else 0,
        }
        for i, (wnid, words) in enumerate(rows)
    ]


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def write_imagenet_archives(root: Path, truth: tuple[int, ...] = (2, 1, 2)) -> None:
    """The three archives as they are distributed: a tar of tars, a flat tar, and the devkit."""
    import cv2

    root.mkdir(parents=True, exist_ok=True)

    def jpeg(seed: int) -> bytes:
        return bytes(cv2.imencode(".jpg", picture(seed))[1])

    with tarfile.open(root / "ILSVRC2012_img_train.tar", "w") as outer:
        for k, wnid in enumerate(("n01440764", "n01443537")):
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w") as inner:
                for i in range(2):
                    _add(inner, f"{wnid}_{i}.JPEG", jpeg(10 * k + i))
            _add(outer, f"{wnid}.tar", buffer.getvalue())
    with tarfile.open(root / "ILSVRC2012_img_val.tar", "w") as tar:
        for i in range(len(truth)):
            _add(tar, f"ILSVRC2012_val_{i + 1:08d}.JPEG", jpeg(50 + i))
    with tarfile.open(root / "ILSVRC2012_devkit_t12.tar.gz", "w:gz") as tar:
        _add(tar, "ILSVRC2012_devkit_t12/data/meta.mat", mat_file(imagenet_synsets()))
        _add(
            tar,
            "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt",
            "".join(f"{t}\n" for t in truth).encode(),
        )
