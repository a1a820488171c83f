"""Layers: their arguments, and inputs that do not suit them. A layer speaks of its own arguments."""

from __future__ import annotations

import numpy as np
from mistake import ALL, mistake

import megengine.functional as F
import megengine.module as M
from megengine import Tensor

LINEAR = M.Linear(3, 2)
CONV = M.Conv2d(3, 8, 3)
NORM = M.BatchNorm2d(3)
NET = M.Sequential(M.Linear(4, 4), M.ReLU(), M.Linear(3, 2))


@mistake(ValueError, "Linear", "in_features=3", "(2, 5)", modes=ALL, good=((2, 3),), bad=((2, 5),))
def linear_of_another_number_of_features(x):
    return LINEAR(x)


@mistake(ValueError, "Linear", "in_features=12", "(4, 3, 2, 2)", "flatten", modes=ALL)
def linear_of_an_image_that_is_not_flattened():
    return M.Linear(12, 2)(F.ones((4, 3, 2, 2)))


@mistake(ValueError, "Linear", "in_features=3", "(1, 4)", "2", modes=ALL)
def linear_inside_a_network():
    return NET(F.ones((1, 4)))


@mistake(ValueError, "Linear", "out_features", "-2")
def linear_of_a_negative_size():
    return M.Linear(3, -2)


@mistake(TypeError, "Linear", "in_features", "3.0", "int")
def linear_of_a_float_size():
    return M.Linear(3.0, 2)


@mistake(ValueError, "Conv2d", "in_channels=3", "(1, 4, 8, 8)", modes=ALL, good=((1, 3, 8, 8),), bad=((1, 4, 8, 8),))
def conv2d_of_another_number_of_channels(x):
    return CONV(x)


@mistake(ValueError, "Conv2d", "in_channels=3", "(1, 8, 8, 3)", "transpose(0, 3, 1, 2)", modes=ALL)
def conv2d_of_an_image_with_channels_last():
    return CONV(F.ones((1, 8, 8, 3)))


@mistake(ValueError, "Conv2d", "(N, C, H, W)", "(3, 8, 8)", "expand_dims", modes=ALL)
def conv2d_of_an_image_without_a_batch():
    return CONV(F.ones((3, 8, 8)))


@mistake(ValueError, "Conv2d", "kernel_size", "(1, 3, 2, 2)", "padding", modes=ALL)
def conv2d_of_an_image_smaller_than_the_kernel():
    return CONV(F.ones((1, 3, 2, 2)))


@mistake(ValueError, "Conv2d", "stride", "0")
def conv2d_with_a_stride_of_0():
    return M.Conv2d(3, 8, 3, stride=0)


@mistake(ValueError, "Conv2d", "kernel_size", "0")
def conv2d_with_a_kernel_of_0():
    return M.Conv2d(3, 8, 0)


@mistake(ValueError, "Conv2d", "kernel_size", "(3, 3, 3)", "2")
def conv2d_with_three_kernel_sizes():
    return M.Conv2d(3, 8, (3, 3, 3))


@mistake(ValueError, "Conv2d", "padding", "-1")
def conv2d_with_a_negative_padding():
    return M.Conv2d(3, 8, 3, padding=-1)


@mistake(ValueError, "Conv2d", "dilation", "0")
def conv2d_with_a_dilation_of_0():
    return M.Conv2d(3, 8, 3, dilation=0)


@mistake(ValueError, "Conv2d", "in_channels 3", "groups 2")
def conv2d_with_groups_that_do_not_divide():
    return M.Conv2d(3, 8, 3, groups=2)


@mistake(ValueError, "Conv2d", "groups", "0")
def conv2d_with_no_groups():
    return M.Conv2d(3, 8, 3, groups=0)


@mistake(ValueError, "Conv2d", "padding_mode", "'mirror'", "reflect")
def conv2d_with_a_padding_mode_that_is_not_there():
    return M.Conv2d(3, 8, 3, padding_mode="mirror")


@mistake(ValueError, "Conv2d", "padding", "'same'", "kernel_size // 2")
def conv2d_with_padding_same():
    return M.Conv2d(3, 8, 3, padding="same")


@mistake(ValueError, "Conv1d", "in_channels=3", "(1, 4, 8)", modes=ALL)
def conv1d_of_another_number_of_channels():
    return M.Conv1d(3, 8, 3)(F.ones((1, 4, 8)))


@mistake(ValueError, "Conv3d", "in_channels=3", "(1, 4, 8, 8, 8)", modes=ALL)
def conv3d_of_another_number_of_channels():
    return M.Conv3d(3, 8, 3)(F.ones((1, 4, 8, 8, 8)))


@mistake(ValueError, "ConvTranspose2d", "in_channels=3", "(1, 4, 8, 8)", modes=ALL)
def conv_transpose2d_of_another_number_of_channels():
    return M.ConvTranspose2d(3, 8, 3)(F.ones((1, 4, 8, 8)))


@mistake(ValueError, "ConvTranspose2d", "output_padding", "2", "stride", modes=ALL)
def conv_transpose2d_with_too_much_output_padding():
    return M.ConvTranspose2d(3, 8, 3, stride=2, output_padding=2)(F.ones((1, 3, 8, 8)))


@mistake(
    ValueError, "BatchNorm2d", "num_features=3", "(2, 4, 5, 5)", modes=ALL, good=((2, 3, 5, 5),), bad=((2, 4, 5, 5),)
)
def batch_norm_of_another_number_of_channels(x):
    return NORM(x)


@mistake(ValueError, "BatchNorm2d", "(N, C, H, W)", "(2, 3)", "BatchNorm1d", modes=ALL)
def batch_norm_2d_of_a_matrix():
    return NORM(F.ones((2, 3)))


@mistake(ValueError, "BatchNorm1d", "(N, C)", "(2, 3, 4, 4)", "BatchNorm2d", modes=ALL)
def batch_norm_1d_of_images():
    return M.BatchNorm1d(3)(F.ones((2, 3, 4, 4)))


@mistake(ValueError, "BatchNorm1d", "num_features=5", "(2, 3)", modes=ALL)
def batch_norm_1d_of_another_number_of_features():
    return M.BatchNorm1d(5)(F.ones((2, 3)))


@mistake(ValueError, "LayerNorm", "normalized_shape=(4,)", "(2, 3)", modes=ALL)
def layer_norm_of_another_shape():
    return M.LayerNorm(4)(F.ones((2, 3)))


@mistake(ValueError, "GroupNorm", "num_channels", "6", "num_groups", "4")
def group_norm_with_groups_that_do_not_divide():
    return M.GroupNorm(4, 6)


@mistake(ValueError, "GroupNorm", "num_channels=4", "(1, 6, 2, 2)", modes=ALL)
def group_norm_of_another_number_of_channels():
    return M.GroupNorm(2, 4)(F.ones((1, 6, 2, 2)))


@mistake(ValueError, "InstanceNorm", "num_channels=4", "(1, 6, 2, 2)", modes=ALL)
def instance_norm_of_another_number_of_channels():
    return M.InstanceNorm(4)(F.ones((1, 6, 2, 2)))


@mistake(IndexError, "Embedding", "num_embeddings=4", "7")
def embedding_of_an_index_that_is_not_there():
    return M.Embedding(4, 2)(Tensor([1, 7])).numpy()


@mistake(ValueError, "Embedding", "padding_idx")
def embedding_with_an_option_that_is_not_there():
    return M.Embedding(4, 2, padding_idx=1)


@mistake(ValueError, "Dropout", "drop_prob", "1.5")
def dropout_with_a_probability_above_1():
    return M.Dropout(1.5)(F.ones(3))


@mistake(ValueError, "LSTM", "input_size=3", "(5, 2, 4)", modes=ALL)
def lstm_of_another_number_of_features():
    return M.LSTM(3, 4)(F.ones((5, 2, 4)))


@mistake(ValueError, "RNNCell", "input_size=3", "(2, 4)", modes=ALL)
def rnn_cell_of_another_number_of_features():
    return M.RNNCell(3, 4)(F.ones((2, 4)))


@mistake(ValueError, "MultiHeadAttention", "embed_dim", "10", "num_heads", "3")
def attention_with_heads_that_do_not_divide():
    return M.MultiHeadAttention(10, 3)


@mistake(ValueError, "MaxPool2d", "kernel_size", "0")
def max_pool_with_a_window_of_0():
    return M.MaxPool2d(0)


@mistake(ValueError, "MaxPool2d", "kernel_size", "(1, 3, 2, 2)", modes=ALL)
def max_pool_of_an_image_smaller_than_the_window():
    return M.MaxPool2d(3)(F.ones((1, 3, 2, 2)))


@mistake(ValueError, "PixelShuffle", "upscale_factor=2", "(1, 3, 4, 4)", modes=ALL)
def pixel_shuffle_of_channels_that_do_not_divide():
    return M.PixelShuffle(2)(F.ones((1, 3, 4, 4)))


@mistake(TypeError, "Sequential", "list", "Sequential(*layers)")
def sequential_of_a_list():
    return M.Sequential([M.Linear(3, 3), M.ReLU()])


@mistake(TypeError, "Sequential", "1", "class ReLU", "ReLU()")
def sequential_of_a_class():
    return M.Sequential(M.Linear(3, 3), M.ReLU)


@mistake(AttributeError, "Net", "super().__init__()", "fc")
def module_without_super_init():
    class Net(M.Module):
        def __init__(self):
            self.fc = M.Linear(2, 2)  # here

        def forward(self, x):
            return self.fc(x)

    return Net()


@mistake(AttributeError, "Net", "super().__init__()")
def module_without_super_init_that_is_called():
    class Net(M.Module):
        def __init__(self):
            self.scale = 2.0

        def forward(self, x):
            return x * self.scale

    return Net()(F.ones(2))


@mistake(TypeError, "Net", "forward")
def module_without_forward():
    class Net(M.Module):
        def __call__(self, x):
            return x

    return Net()


@mistake(TypeError, "forward()", "x")
def module_called_without_an_argument():
    return LINEAR()


@mistake(AttributeError, "Linear", "wieght")
def attribute_that_is_misspelt():
    return LINEAR.wieght


@mistake(KeyError, "load_state_dict", "extra", "strict=False")
def load_a_state_with_a_name_too_many():
    LINEAR.load_state_dict({**LINEAR.state_dict(), "extra": np.zeros(1, "float32")})


@mistake(KeyError, "load_state_dict", "bias", "strict=False")
def load_a_state_with_a_name_too_few():
    LINEAR.load_state_dict({"weight": LINEAR.weight.numpy()})


@mistake(ValueError, "load_state_dict", "weight", "(2, 3)", "(2, 4)", "Linear")
def load_a_state_of_another_shape():
    LINEAR.load_state_dict(M.Linear(4, 2).state_dict())


@mistake(ValueError, "load_state_dict", "dict", "str", "megengine.load")
def load_a_state_from_a_file_name():
    LINEAR.load_state_dict("net.pkl")


@mistake(KeyError, "load_state_dict", "module.", "prefix")
def load_a_state_with_a_prefix():
    LINEAR.load_state_dict({f"module.{k}": v for k, v in LINEAR.state_dict().items()})


@mistake(AssertionError, "name", "''")
def module_with_a_blank_name():
    return M.Linear(2, 2, name="")


@mistake(ValueError, "calculate_gain", "'swish'", "relu")
def gain_of_an_activation_that_is_not_there():
    return M.init.calculate_gain("swish")


@mistake(ValueError, "msra_uniform_", "2 dimensions", "(3,)")
def initialise_a_vector_by_fan_in():
    M.init.msra_uniform_(Tensor(np.zeros(3, "float32")))


@mistake(TypeError, "Linear", "None", "return", modes=ALL)
def forward_that_returns_nothing():
    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.fc = M.Linear(3, 3)

        def forward(self, x):
            self.fc(x)

    return M.Sequential(Net(), M.Linear(3, 2))(F.ones((1, 3)))


@mistake(TypeError, "cross_entropy", "NoneType", "forward", "return", modes=ALL)
def loss_of_a_forward_that_returns_nothing():
    class Net(M.Module):
        def forward(self, x):
            x * 2

    return F.nn.cross_entropy(Net()(F.ones((1, 3))), Tensor([1]))


@mistake(TypeError, "Linear", "list", "Tensor(x)", modes=ALL)
def linear_of_a_list():
    return LINEAR([[1.0, 2.0, 3.0]])


@mistake(TypeError, "Linear", "'biass'", "in_features, out_features, bias", "bias=", modes=ALL)
def linear_with_a_misspelt_argument():
    return M.Linear(3, 2, biass=False)


@mistake(TypeError, "Conv2d", "kernel_size", modes=ALL)
def conv2d_without_a_kernel_size():
    return M.Conv2d(3, 8)


@mistake(ValueError, "LSTM", "(1, 2, 4)", "(1, 3, 4)", "(h, c)", modes=ALL)
def lstm_with_a_state_of_another_batch():
    return M.LSTM(3, 4)(F.ones((5, 2, 3)), (F.ones((1, 3, 4)), F.ones((1, 3, 4))))


@mistake(ValueError, "MaxPool2d", "stride", "-1")
def max_pool_with_a_negative_stride():
    return M.MaxPool2d(2, stride=-1)


@mistake(AssertionError, "load_state_dict", "bias", "Tensor", "x.numpy()")
def load_a_state_of_tensors():
    LINEAR.load_state_dict({k: Tensor(v) for k, v in LINEAR.state_dict().items()})
