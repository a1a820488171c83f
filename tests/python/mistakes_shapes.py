"""Shapes, axes and indices that do not fit."""

from __future__ import annotations

import numpy as np
from mistake import ALL, mistake

import megengine as mge
import megengine.functional as F
from megengine import Tensor


@mistake(
    ValueError, "add", "[2,3]", "[2,4]", "axis -1: 3 against 4", modes=ALL, good=((2, 3), (2, 3)), bad=((2, 3), (2, 4))
)
def add_of_shapes_that_do_not_broadcast(x, y):
    return x + y


@mistake(ValueError, "mul", "[2,3]", "[4]", modes=ALL, good=((2, 3), (3,)), bad=((2, 3), (4,)))
def multiply_by_a_vector_of_another_length(x, y):
    return x * y


@mistake(ValueError, "add", "[2,3]", "[4]", modes=ALL)
def add_an_array_of_another_length():
    return F.ones((2, 3)) + np.ones(4, "float32")


@mistake(ValueError, "matmul", "[2,3]", "[4,5]", "3", "4", modes=ALL, good=((2, 3), (3, 5)), bad=((2, 3), (4, 5)))
def matmul_of_inner_sizes_that_differ(x, y):
    return F.matmul(x, y)


@mistake(ValueError, "matmul", "[3,3]", "[2,3]", modes=ALL)
def matmul_operator_of_a_weight_that_is_not_transposed():
    return F.ones((3, 3)) @ F.ones((2, 3))


@mistake(ValueError, "dot", "length", "2 and 3", modes=ALL)
def dot_of_vectors_of_other_lengths():
    return F.dot(F.ones(2), F.ones(3))


@mistake(ValueError, "concat", "[2,3]", "[2,4]", "axis 0", modes=ALL, good=((2, 3), (2, 3)), bad=((2, 3), (2, 4)))
def concat_along_the_wrong_axis(x, y):
    return F.concat([x, y], axis=0)


@mistake(ValueError, "concat", "[2,3]", "[3]", "stack", modes=ALL)
def concat_of_other_ranks():
    return F.concat([F.ones((2, 3)), F.ones(3)])


@mistake(TypeError, "concat", "a Tensor", "F.concat([x, y])")
def concat_without_a_list():
    return F.concat(F.ones((2, 3)), F.ones((2, 3)))


@mistake(ValueError, "concat", "empty")
def concat_of_nothing():
    return F.concat([])


@mistake(ValueError, "stack", "(2, 3)", "(2, 4)", "concat", modes=ALL, good=((2, 3), (2, 3)), bad=((2, 3), (2, 4)))
def stack_of_shapes_that_differ(x, y):
    return F.stack([x, y])


@mistake(ValueError, "reshape", "[2,3]", "6", "[4,-1]", modes=ALL, good=((2, 4),), bad=((2, 3),))
def reshape_into_rows_that_do_not_divide(x):
    return x.reshape(4, -1)


@mistake(ValueError, "reshape", "[2,3]", "6", "[5]", modes=ALL)
def reshape_to_another_count():
    return F.reshape(F.ones((2, 3)), (5,))


@mistake(ValueError, "reshape", "-1", "[-1,-1]", modes=ALL)
def reshape_with_two_unknown_sizes():
    return F.ones((2, 3)).reshape(-1, -1)


@mistake(ValueError, "broadcast_to", "[2,3]", "[4,3]", modes=ALL, good=((1, 3),), bad=((2, 3),))
def broadcast_to_a_size_that_is_neither_1_nor_equal(x):
    return F.broadcast_to(x, (4, 3))


@mistake(ValueError, "squeeze", "axis 0", "2", "[2,3]", modes=ALL, good=((1, 3),), bad=((2, 3),))
def squeeze_an_axis_that_is_not_1(x):
    return F.squeeze(x, 0)


@mistake(ValueError, "transpose", "(2, 3, 4)", "(0, 1)", "axis 2", modes=ALL)
def transpose_that_forgets_an_axis():
    return F.transpose(F.ones((2, 3, 4)), (0, 1))


@mistake(ValueError, "transpose", "(2, 3)", "(0, 0)", "once", modes=ALL)
def transpose_that_names_an_axis_twice():
    return F.transpose(F.ones((2, 3)), (0, 0))


@mistake(ValueError, "transpose", "(2, 3)", "(0, 1, 2)", modes=ALL)
def transpose_with_an_axis_too_many():
    return F.ones((2, 3)).transpose(0, 1, 2)


@mistake(ValueError, "expand_dims", "axis 5", "2 dimensions", "-3", modes=ALL)
def expand_dims_far_behind_the_last_axis():
    return F.expand_dims(F.ones((2, 3)), 5)


@mistake(ValueError, "sum", "axis 2", "2 dimensions", "-2", modes=ALL)
def sum_over_an_axis_that_is_not_there():
    return F.sum(F.ones((2, 3)), axis=2)


@mistake(ValueError, "mean", "axis 3", "2 dimensions", modes=ALL)
def mean_method_over_an_axis_that_is_not_there():
    return F.ones((2, 3)).mean(axis=3)


@mistake(ValueError, "max", "axis -3", "2 dimensions", modes=ALL)
def max_over_an_axis_counted_too_far_back():
    return F.max(F.ones((2, 3)), axis=-3)


@mistake(ValueError, "sum", "twice", "(0, 0)", modes=ALL)
def sum_over_an_axis_twice():
    return F.sum(F.ones((2, 3)), axis=(0, 0))


@mistake(TypeError, "sum", "axis", "1.0")
def sum_over_a_float_axis():
    return F.sum(F.ones((2, 3)), axis=1.0)


@mistake(ValueError, "argmax", "axis 2", "2 dimensions", modes=ALL)
def argmax_over_an_axis_that_is_not_there():
    return F.argmax(F.ones((2, 3)), axis=2)


@mistake(ValueError, "softmax", "axis 2", "2 dimensions", modes=ALL)
def softmax_over_an_axis_that_is_not_there():
    return F.softmax(F.ones((2, 3)), axis=2)


@mistake(ValueError, "swapaxes", "axis 2", "2 dimensions", modes=ALL)
def swapaxes_of_an_axis_that_is_not_there():
    return F.swapaxes(F.ones((2, 3)), 0, 2)


@mistake(ValueError, "flatten", "3", "2 dimensions", modes=ALL)
def flatten_from_an_axis_that_is_not_there():
    return F.flatten(F.ones((2, 3)), 3)


@mistake(ValueError, "cumsum", "axis 2", "2 dimensions", modes=ALL)
def cumsum_over_an_axis_that_is_not_there():
    return F.cumsum(F.ones((2, 3)), axis=2)


@mistake(ValueError, "repeat", "axis 2", "2 dimensions", modes=ALL)
def repeat_along_an_axis_that_is_not_there():
    return F.repeat(F.ones((2, 3)), 2, axis=2)


@mistake(ValueError, "roll", "axis 2", "2 dimensions", modes=ALL)
def roll_along_an_axis_that_is_not_there():
    return F.roll(F.ones((2, 3)), 1, axis=2)


@mistake(ValueError, "gather", "index", "axis 1", modes=ALL)
def gather_with_an_index_that_is_too_wide():
    return F.gather(F.ones((2, 3)), 0, F.zeros((2, 4), dtype="int32"))


@mistake(ValueError, "tile", "-1", modes=ALL)
def tile_a_negative_number_of_times():
    return F.tile(F.ones((2, 3)), (2, -1))


@mistake(IndexError, "index 5", "axis 0", "size 2", modes=ALL, good=((6, 3),), bad=((2, 3),))
def index_behind_the_end(x):
    return x[5]


@mistake(IndexError, "too many indices", "2-dimensional", "3", modes=ALL)
def index_with_too_many_numbers():
    return F.ones((2, 3))[0, 0, 0]


@mistake(TypeError, "1.5", "integer")
def index_with_a_float():
    return F.ones((2, 3))[1.5]


@mistake(ValueError, "float32", "int", "astype")
def index_with_a_float_tensor():
    return F.ones((2, 3))[F.ones(2)]


@mistake(IndexError, "mask", "(3,)", "(2,)", modes=ALL)
def index_with_a_mask_of_another_length():
    return F.ones((2, 3))[Tensor([True, False, True])]


@mistake(TypeError, "'name'", "integer")
def index_with_a_string():
    return F.ones((2, 3))["name"]


@mistake(ValueError, "cannot copy", "[4]", "[3]", modes=ALL)
def assign_a_row_of_another_length():
    x = F.ones((2, 3))
    x[0] = F.ones(4)


@mistake(ValueError, "where", "[2,3]", "[4]", modes=ALL)
def where_of_shapes_that_do_not_broadcast():
    return F.where(F.ones((2, 3)) > 0, F.ones((2, 3)), F.ones(4))


@mistake(ValueError, "pad", "2 axes", "((1, 1),", modes=ALL)
def pad_with_a_pair_too_many():
    return F.nn.pad(F.ones((2, 3)), ((1, 1), (1, 1), (1, 1)))


@mistake(ValueError, "linear", "[2,3]", "5", "[4,5]", modes=ALL, good=((2, 5),), bad=((2, 3),))
def linear_of_another_number_of_features(x):
    return F.linear(x, F.ones((4, 5)))


@mistake(ValueError, "conv2d", "4 channels", "3", "[1,4,8,8]", modes=ALL, good=((1, 3, 8, 8),), bad=((1, 4, 8, 8),))
def conv2d_of_another_number_of_channels(x):
    return F.conv2d(x, F.ones((2, 3, 3, 3)))


@mistake(ValueError, "conv2d", "[N,C,H,W]", "[3,8,8]", modes=ALL)
def conv2d_of_an_image_without_a_batch():
    return F.conv2d(F.ones((3, 8, 8)), F.ones((2, 3, 3, 3)))


@mistake(
    ValueError, "conv2d", "kernel", "5", "[1,3,4,4]", "padding", modes=ALL, good=((1, 3, 8, 8),), bad=((1, 3, 4, 4),)
)
def conv2d_of_an_image_smaller_than_the_kernel(x):
    return F.conv2d(x, F.ones((2, 3, 5, 5)))


@mistake(ValueError, "conv2d", "stride", "0", modes=ALL)
def conv2d_with_a_stride_of_0():
    return F.conv2d(F.ones((1, 3, 8, 8)), F.ones((2, 3, 3, 3)), stride=0)


@mistake(ValueError, "max_pool2d", "kernel", "9", "[1,3,8,8]", modes=ALL)
def max_pool2d_with_a_window_larger_than_the_image():
    return F.max_pool2d(F.ones((1, 3, 8, 8)), 9)


@mistake(ValueError, "avg_pool2d", "[N,C,H,W]", "[3,8,8]", modes=ALL)
def avg_pool2d_of_an_image_without_a_batch():
    return F.avg_pool2d(F.ones((3, 8, 8)), 2)


@mistake(ValueError, "interpolate", "size", "scale_factor")
def interpolate_without_a_size():
    return F.vision.interpolate(F.ones((1, 3, 8, 8)))


@mistake(ValueError, "cross_entropy", "(4, 10)", "(4, 1)", modes=ALL)
def cross_entropy_with_labels_in_a_column():
    return F.nn.cross_entropy(F.ones((4, 10)), F.zeros((4, 1), dtype="int32"))


@mistake(ValueError, "cross_entropy", "(4, 10)", "(3,)", modes=ALL)
def cross_entropy_with_labels_of_another_batch():
    return F.nn.cross_entropy(F.ones((4, 10)), F.zeros(3, dtype="int32"))


@mistake(RuntimeWarning, "square_loss", "(4, 1)", "(4,)", "(4, 4)", "reshape")
def square_loss_that_broadcasts():
    for _ in range(3):
        F.nn.square_loss(F.ones((4, 1)), F.ones(4))


@mistake(RuntimeWarning, "l1_loss", "(4, 1)", "(4,)", "(4, 4)", "reshape")
def l1_loss_that_broadcasts():
    F.nn.l1_loss(F.ones((4, 1)), F.ones(4))


@mistake(ValueError, "layer_norm", "(4,)", "(2, 3)", modes=ALL)
def layer_norm_over_another_shape():
    return F.nn.layer_norm(F.ones((2, 3)), (4,), False)


@mistake(ValueError, "matinv", "square", "[2,3]", modes=ALL)
def matinv_of_a_matrix_that_is_not_square():
    return F.matinv(F.ones((2, 3)))


@mistake(IndexError, "one_hot", "5", "3")
def one_hot_of_a_class_that_is_not_there():
    return F.nn.one_hot(Tensor([5]), 3).numpy()


@mistake(IndexError, "embedding", "7", "4")
def embedding_of_an_index_that_is_not_there():
    return F.nn.embedding(Tensor([7]), F.ones((4, 2))).numpy()


@mistake(ValueError, "einsum", "ij,jk->ik", "3", "4", modes=ALL)
def einsum_of_sizes_that_differ():
    return F.einsum("ij,jk->ik", F.ones((2, 3)), F.ones((4, 5)))


@mistake(ValueError, "arange", "step", "0")
def arange_with_a_step_of_0():
    return F.arange(0, 5, 0)


@mistake(ValueError, "linspace", "-1")
def linspace_of_a_negative_number():
    return F.linspace(0, 1, -1)


@mistake(ValueError, "zeros", "-1")
def zeros_of_a_negative_size():
    return F.zeros((2, -1))


@mistake(ValueError, "normal", "-1")
def random_numbers_of_a_negative_size():
    return mge.random.normal(size=(2, -1))


@mistake(ValueError, "cross_entropy", "(4, 10)", "F.argmax(label, axis=1)", modes=ALL)
def cross_entropy_with_one_hot_labels():
    return F.nn.cross_entropy(F.ones((4, 10)), F.ones((4, 10)))


@mistake(IndexError, "cross_entropy", "label 10", "0..9", "10 classes")
def cross_entropy_with_a_class_that_is_not_there():
    return F.nn.cross_entropy(F.ones((2, 10)), Tensor([0, 10])).numpy()


@mistake(ValueError, "matmul", "[4,3]", "[2,3]", "transpose_b=True", modes=ALL)
def matmul_of_a_weight_that_is_not_transposed():
    return F.matmul(F.ones((4, 3)), F.ones((2, 3)))


@mistake(ValueError, "conv2d", "stride", "[0,1]", modes=ALL)
def conv2d_with_a_stride_of_0_on_one_axis():
    return F.conv2d(F.ones((1, 3, 8, 8)), F.ones((2, 3, 3, 3)), stride=(0, 1))


@mistake(TypeError, "reshape", "integers", "2.0", modes=ALL)
def reshape_to_a_float():
    return F.ones((2, 3)).reshape(2.0, 3)


@mistake(ValueError, "pad", "(1, 1, 1, 1)", "(before, after)", modes=ALL)
def pad_with_numbers_in_a_row():
    return F.nn.pad(F.ones((1, 3, 8, 8)), (1, 1, 1, 1))
