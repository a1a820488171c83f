"""Datasets: things with samples."""

from .meta_dataset import ArrayDataset, ConcatDataset, Dataset, StreamDataset
from .vision import (
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
    cifar,
    cityscapes,
    coco,
    folder,
    imagenet,
    meta_vision,
    mnist,
    objects365,
    utils,
    voc,
)

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "COCO",
    "MNIST",
    "ArrayDataset",
    "Cityscapes",
    "ConcatDataset",
    "Dataset",
    "ImageFolder",
    "ImageNet",
    "Objects365",
    "PascalVOC",
    "StreamDataset",
    "VisionDataset",
]
