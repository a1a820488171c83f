"""Datasets, samplers, transforms and the loader."""

from __future__ import annotations

import numpy as np
from mistake import mistake

from megengine import Tensor
from megengine.data import DataLoader, RandomSampler, ReplacementSampler, SequentialSampler, StreamSampler
from megengine.data import transform as T
from megengine.data.collator import Collator
from megengine.data.dataset import MNIST, ArrayDataset, Dataset, ImageFolder, StreamDataset

DATA = ArrayDataset(np.zeros((10, 8, 8, 3), "uint8"), np.arange(10))
IMAGE = np.zeros((8, 8, 3), "uint8")


@mistake(TypeError, "DataLoader", "batch_size", "RandomSampler(dataset, batch_size=4)")
def loader_with_a_batch_size():
    DataLoader(DATA, batch_size=4)


@mistake(TypeError, "DataLoader", "shuffle", "RandomSampler")
def loader_with_shuffle():
    DataLoader(DATA, shuffle=True)


@mistake(TypeError, "DataLoader", "collate_fn", "collator")
def loader_with_a_collate_fn():
    DataLoader(DATA, collate_fn=lambda samples: samples)


@mistake(TypeError, "DataLoader", "drop_last", "sampler")
def loader_with_drop_last():
    DataLoader(DATA, drop_last=True)


@mistake(TypeError, "DataLoader", "pin_memory")
def loader_with_pin_memory():
    DataLoader(DATA, pin_memory=True)


@mistake(TypeError, "DataLoader", "transform", "function", "apply")
def lambda_as_transform():
    DataLoader(DATA, transform=lambda sample: sample)


@mistake(TypeError, "DataLoader", "collator", "function", "apply")
def function_as_collator():
    DataLoader(DATA, collator=lambda samples: samples)


@mistake(TypeError, "DataLoader", "dataset", "list", "ArrayDataset")
def loader_of_a_list():
    DataLoader([1, 2, 3])


@mistake(TypeError, "DataLoader", "dataset", "ndarray", "ArrayDataset")
def loader_of_an_array():
    DataLoader(np.zeros((10, 3)))


@mistake(TypeError, "DataLoader", "sampler", "int", "SequentialSampler")
def number_as_sampler():
    DataLoader(DATA, 4)


@mistake(TypeError, "DataLoader", "StreamSampler", "ArrayDataset", "RandomSampler")
def stream_sampler_for_a_map_dataset():
    DataLoader(DATA, StreamSampler(4))


@mistake(TypeError, "DataLoader", "SequentialSampler", "Lines", "StreamSampler")
def map_sampler_for_a_stream():
    class Lines(StreamDataset):
        def __init__(self):
            pass

        def __iter__(self):
            return iter(range(3))

    DataLoader(Lines(), SequentialSampler(DATA))


@mistake(ValueError, "DataLoader", "num_workers", "-1")
def loader_with_a_negative_number_of_workers():
    DataLoader(DATA, num_workers=-1)


@mistake(TypeError, "DataLoader", "num_workers", "'2'", "int")
def loader_with_a_number_of_workers_in_quotes():
    DataLoader(DATA, num_workers="2")


@mistake(ValueError, "DataLoader", "timeout", "-1")
def loader_with_a_negative_timeout():
    DataLoader(DATA, timeout=-1)


@mistake(ValueError, "RandomSampler", "batch_size", "0", "positive")
def sampler_with_a_batch_of_0():
    RandomSampler(DATA, batch_size=0)


@mistake(ValueError, "RandomSampler", "batch_size", "2.5", "positive integer")
def sampler_with_a_broken_batch():
    RandomSampler(DATA, batch_size=2.5)


@mistake(ValueError, "RandomSampler", "batch_size=20", "10", "drop_last")
def sampler_with_a_batch_larger_than_the_dataset():
    RandomSampler(DATA, batch_size=20, drop_last=True)


@mistake(ValueError, "ReplacementSampler", "weights", "3", "10")
def sampler_with_too_few_weights():
    ReplacementSampler(DATA, weights=[1, 2, 3])


@mistake(ValueError, "rank", "3", "world_size", "2")
def sampler_of_a_rank_that_is_not_there():
    RandomSampler(DATA, world_size=2, rank=3)


@mistake(ValueError, "ArrayDataset", "10", "9")
def arrays_of_other_lengths():
    ArrayDataset(np.zeros(10), np.zeros(9))


@mistake(TypeError, "Pairs", "__len__")
def dataset_without_a_length():
    class Pairs(Dataset):
        def __getitem__(self, index):
            return index

    DataLoader(Pairs())


@mistake(TypeError, "Pairs", "abstract", "__init__")
def dataset_without_init():
    class Pairs(Dataset):
        def __getitem__(self, index):
            return index

        def __len__(self):
            return 3

    return Pairs().missing()


@mistake(ValueError, "Collator", "(2,)", "(3,)")
def samples_of_other_shapes():
    Collator().apply([np.zeros(2), np.zeros(3)])


@mistake(ValueError, "Collator", "2", "3")
def samples_with_other_numbers_of_fields():
    Collator().apply([(1, 2), (1, 2, 3)])


@mistake(OSError, "disk on fire", "sample 3")
def dataset_that_fails():
    class Broken(Dataset):
        def __init__(self):
            pass

        def __len__(self):
            return 6

        def __getitem__(self, index):
            if index == 3:
                raise OSError("disk on fire")
            return index

    data = Broken()
    list(DataLoader(data, SequentialSampler(data, batch_size=2)))


@mistake(RuntimeError, "OSError", "disk on fire", "worker", "sample 3")
def dataset_that_fails_in_a_worker():
    class Broken(Dataset):
        def __init__(self):
            pass

        def __len__(self):
            return 6

        def __getitem__(self, index):
            if index == 3:
                raise OSError("disk on fire")
            return index

    data = Broken()
    list(DataLoader(data, SequentialSampler(data, batch_size=2), num_workers=1))


@mistake(TypeError, "Compose", "function", "Transform")
def lambda_in_compose():
    T.Compose([T.ToMode(), lambda x: x])


@mistake(ValueError, "CenterCrop", "16x16", "8x8", "Pad")
def crop_larger_than_the_image():
    T.CenterCrop(16).apply(IMAGE)


@mistake(ValueError, "RandomHorizontalFlip", "prob", "1.5")
def flip_with_a_probability_above_1():
    T.RandomHorizontalFlip(prob=1.5)


@mistake(ValueError, "Resize", "(height, width)", "'small'")
def resize_to_a_word():
    T.Resize("small")


@mistake(ValueError, "Normalize", "3", "2")
def normalize_by_too_few_means():
    T.Normalize(mean=[1.0, 2.0], std=[1.0, 2.0]).apply(IMAGE)


@mistake(ValueError, "ToMode", "NCWH", "CHW")
def mode_that_is_not_there():
    T.ToMode("NCWH")


@mistake(NotImplementedError, "ToMode", "order", "img", "image")
def order_that_is_not_there():
    T.ToMode(order=("img",))


@mistake(ValueError, "MNIST", "/nowhere", "download=True")
def mnist_that_is_not_there():
    MNIST("/nowhere", download=False)


@mistake(FileNotFoundError, "ImageFolder", "/nowhere")
def folder_that_is_not_there():
    ImageFolder("/nowhere")


@mistake(TypeError, "Collator", "NoneType", "return")
def dataset_that_returns_nothing():
    class Empty(Dataset):
        def __init__(self):
            pass

        def __len__(self):
            return 3

        def __getitem__(self, index):
            pass

    next(iter(DataLoader(Empty())))


@mistake(TypeError, "Collator", "Tensor", "x.numpy()", "preload=True")
def dataset_of_tensors():
    Collator().apply([Tensor([1.0])])
