"""Dtypes, devices and what Python may do with a tensor."""

from __future__ import annotations

import numpy as np
from mistake import ALL, mistake

import megengine as mge
import megengine.functional as F
from megengine import Tensor


@mistake(TypeError, "bool", "(x > 0) & (y > 0)", modes=ALL)
def and_of_floats():
    return F.ones(2) & F.ones(2)


@mistake(TypeError, "tensor", "str", "astype", modes=ALL)
def tensor_of_a_string():
    return Tensor("abc")


@mistake(ValueError, "Tensor", "inhomogeneous", modes=ALL)
def tensor_of_lists_of_other_lengths():
    return Tensor([[1, 2], [3]])


@mistake(TypeError, "tensor", "object", "astype", modes=ALL)
def tensor_of_objects():
    return Tensor(np.array([object()]))


@mistake(TypeError, "dtype", "'flaot32'", "float32", modes=ALL)
def tensor_of_a_misspelt_dtype():
    return Tensor([1.0], dtype="flaot32")


@mistake(ValueError, "dtype", "'floating'", "float32", modes=ALL)
def astype_of_a_misspelt_dtype():
    return F.ones(2).astype("floating")


@mistake(ValueError, "where", "mask", "bool", "float32", modes=ALL)
def where_with_a_mask_of_floats():
    return F.where(F.ones(2), F.ones(2), F.zeros(2))


@mistake(ValueError, "embedding", "float32", "int32", modes=ALL)
def embedding_of_float_indices():
    return F.nn.embedding(F.ones(2), F.ones((4, 2)))


@mistake(ValueError, "one_hot", "float32", "int32", modes=ALL)
def one_hot_of_floats():
    return F.nn.one_hot(F.ones(2), 4)


@mistake(ValueError, "gather", "float32", "int32", modes=ALL)
def gather_with_a_float_index():
    return F.gather(F.ones((2, 3)), 0, F.ones((2, 3)))


@mistake(TypeError, "+", "'Tensor' and 'str'", modes=ALL)
def add_a_string():
    return F.ones(2) + "1"


@mistake(TypeError, "add", "None", modes=ALL)
def add_none():
    return F.ones(2) + None


@mistake(TypeError, "exp", "None", modes=ALL)
def exp_of_none():
    return F.exp(None)


@mistake(ValueError, "cpu0", "cpu1", ".to(", modes=ALL)
def add_tensors_of_two_devices():
    return Tensor([1.0], device="cpu0") + Tensor([1.0], device="cpu1")


@mistake(ValueError, "to", "'cup0'", "cpu0", modes=ALL)
def to_a_misspelt_device():
    return F.ones(2).to("cup0")


@mistake(ValueError, "device", "'cup0'", "cpu0", modes=ALL)
def tensor_on_a_misspelt_device():
    return Tensor([1.0], device="cup0")


@mistake(ValueError, "item", "(2, 3)", "6", "tolist", "numpy", modes=ALL)
def item_of_many_elements():
    return F.ones((2, 3)).item()


@mistake(ValueError, "if", "[3]", "3", "any()", modes=ALL)
def truth_of_many_elements():
    if F.ones(3) > 0:  # here
        return 1


@mistake(ValueError, "float", "[3]", "3", "numpy", modes=ALL)
def float_of_many_elements():
    return float(F.ones(3))


@mistake(ValueError, "int", "[3]", "3", "numpy", modes=ALL)
def int_of_many_elements():
    return int(F.ones(3))


@mistake(TypeError, "range", "float32", "int", modes=ALL)
def range_of_a_float():
    return range(F.ones(()))


@mistake(TypeError, "len", "0-d", "size", modes=ALL)
def length_of_a_scalar():
    return len(F.sum(F.ones(3)))


@mistake(TypeError, "0-d", "iter", modes=ALL)
def loop_over_a_scalar():
    for _ in F.sum(F.ones(3)):  # here
        pass


@mistake(NotImplementedError, "in", ".numpy()", modes=ALL)
def search_in_a_tensor():
    return 1 in F.ones(3)


@mistake(IndexError, "item", "(2, 3)", "5", modes=ALL)
def item_at_an_index_that_is_not_there():
    return F.ones((2, 3)).item(5, 0)


@mistake(TypeError, "reshape", "integer", modes=ALL)
def reshape_to_a_letter():
    return F.ones(2).reshape("a")


@mistake(TypeError, "zeros", "2.5", "integer", modes=ALL)
def zeros_of_a_broken_size():
    return F.zeros((2.5, 2))


@mistake(ValueError, "read-only", modes=ALL)
def write_into_the_array_of_a_tensor():
    F.ones(2).numpy()[0] = 2


@mistake(ValueError, "dropout", "drop_prob", "1.5", modes=ALL)
def dropout_with_a_probability_above_1():
    return F.nn.dropout(F.ones(2), 1.5)


@mistake(ValueError, "pad", "mode", "'wrap'", "constant", modes=ALL)
def pad_in_a_mode_that_is_not_there():
    return F.nn.pad(F.ones((2, 3)), ((1, 1), (1, 1)), "wrap")


@mistake(ValueError, "interpolate", "mode", "'cubic'", "bilinear", modes=ALL)
def interpolate_in_a_mode_that_is_not_there():
    return F.vision.interpolate(F.ones((1, 3, 8, 8)), 4, mode="cubic")


@mistake(ValueError, "square_loss", "reduction", "'avg'", "mean", modes=ALL)
def reduce_a_loss_in_a_way_that_is_not_there():
    return F.nn.square_loss(F.ones(2), F.ones(2), reduction="avg")


@mistake(TypeError, "seed", "'one'", "int", modes=ALL)
def seed_of_a_word():
    mge.random.seed("one")


@mistake(ValueError, "uniform", "low", "high", "2", "1", modes=ALL)
def uniform_numbers_between_bounds_the_wrong_way_round():
    return mge.random.uniform(2, 1, size=(3,))


@mistake(ValueError, "normal", "std", "-1", modes=ALL)
def normal_numbers_of_negative_deviation():
    return mge.random.normal(0, -1, size=(3,))


@mistake(ValueError, "truth", "[2]", "& and |", modes=ALL)
def masks_joined_by_and():
    return (F.ones(2) > 0) and (F.ones(2) < 2)
