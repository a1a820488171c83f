"""First programs of people who come from PyTorch: functions, layers, data and training as called there."""

from __future__ import annotations

import numpy as np
from mistake import mistake

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor, amp, jit
from megengine.autodiff import GradManager
from megengine.data import DataLoader, RandomSampler
from megengine.data.dataset import ArrayDataset
from megengine.distributed import init_process_group
from megengine.optimizer import SGD, MultiStepLR, clip_grad_norm
from megenginelite import LiteNetwork, LiteTensor

X = Tensor(np.ones((2, 3), "float32"))
LABEL = Tensor([0, 1], dtype="int32")
NET = M.Linear(3, 2)


class torch:
    """Stands for the package, of which only the names of dtypes matter."""

    float32 = type("dtype", (), {"__repr__": lambda self: "torch.float32", "__module__": "torch"})()


@mistake(AttributeError, "relu_", "x = F.relu(x)")
def relu_in_place():
    X.relu_()


@mistake(AttributeError, "relu_", "x = F.relu(x)")
def relu_of_the_package_in_place():
    F.relu_(X)


@mistake(AttributeError, "eq", "x == y")
def eq():
    X.eq(X)


@mistake(AttributeError, "register_hook", "callbacks")
def hook_of_a_tensor():
    X.register_hook(print)


@mistake(AttributeError, "masked_fill_", "x[mask] = value")
def masked_fill_in_place():
    X.masked_fill_(X > 0, 1.0)


@mistake(AttributeError, "values", "F.argmax")
def values_of_max():
    return X.max(1).values


@mistake(TypeError, "torch.float32", "astype('float32')")
def to_a_dtype_of_torch():
    X.to(torch.float32)


@mistake(TypeError, "zeros", "torch.float32", "dtype='float32'")
def zeros_of_a_dtype_of_torch():
    F.zeros((2, 3), dtype=torch.float32)


@mistake(TypeError, "zeros", "one tuple", "F.zeros((2, 3))")
def zeros_of_sizes():
    F.zeros(2, 3)


@mistake(TypeError, "ones", "one tuple", "F.ones((2, 3))")
def ones_of_sizes():
    F.ones(2, 3)


@mistake(TypeError, "topk", "'dim'", "descending", "descending= is what largest= seems to mean")
def topk_along_dim():
    F.topk(X, 1, dim=1, largest=True)


@mistake(TypeError, "argsort", "'dim'")
def argsort_along_dim():
    F.argsort(X, dim=1)


@mistake(TypeError, "flatten", "start_axis= is what start_dim= seems to mean")
def flatten_from_dim():
    F.flatten(X, start_dim=1)


@mistake(TypeError, "clip", "lower= is what min= seems to mean")
def clip_at_min():
    F.clip(X, min=0)


@mistake(TypeError, "pad", "(before, after)", "((1, 1),)")
def pad_by_a_number():
    F.nn.pad(X, 1)


@mistake(TypeError, "cross_entropy", "'weight'", "reduction='none'")
def cross_entropy_with_weights():
    F.nn.cross_entropy(NET(X), LABEL, weight=F.ones(2))


@mistake(TypeError, "cross_entropy", "'ignore_index'", "loss[label != index]")
def cross_entropy_that_ignores():
    F.nn.cross_entropy(NET(X), LABEL, ignore_index=0)


@mistake(AttributeError, "scaled_dot_product_attention", "MultiHeadAttention")
def attention_function():
    F.scaled_dot_product_attention(X, X, X)


@mistake(AttributeError, "mse_loss", "F.nn.square_loss")
def mse_loss_of_nn():
    F.nn.mse_loss(X, X)


@mistake(TypeError, "Linear", "'device'", "set_default_device")
def layer_on_a_device():
    M.Linear(3, 2, device="cuda")


@mistake(ValueError, "Linear", "compute_mode", "'cuda'")
def layer_with_a_device_in_the_wrong_place():
    M.Linear(3, 2, True, "cuda")


@mistake(TypeError, "ReLU", "'inplace'", "leave it out")
def layer_that_works_in_place():
    M.ReLU(inplace=True)


@mistake(AttributeError, "GRU", "LSTM")
def gru():
    M.GRU(3, 2)


@mistake(AttributeError, "utils", "megengine.optimizer")
def clip_grad_of_module_utils():
    M.utils.clip_grad_norm_(NET.parameters(), 1)


@mistake(AttributeError, "kaiming_normal_", "msra_normal_")
def kaiming():
    M.init.kaiming_normal_(NET.weight)


@mistake(AttributeError, "double", "autocast")
def module_in_double():
    NET.double()


@mistake(RuntimeWarning, "Linear.weight", "neither trained nor saved", "Parameter(value)")
def parameter_set_to_an_array():
    net = M.Linear(3, 2)
    net.weight = np.ones((2, 3), "float32")  # here


@mistake(TypeError, "GradManager", "no arguments", ".attach(net.parameters())")
def manager_of_parameters():
    GradManager(NET.parameters())


@mistake(TypeError, "backward", "'retain_graph'", "add the losses up")
def backward_that_retains_the_graph():
    with GradManager().attach(NET.parameters()) as gm:
        gm.backward(NET(X).sum(), retain_graph=True)  # here


@mistake(TypeError, "autocast", "enabled", "'cuda'")
def autocast_of_a_device():
    amp.autocast("cuda")


@mistake(TypeError, "GradScaler", "init_scale", "'cuda'")
def scaler_of_a_device():
    amp.GradScaler("cuda")


@mistake(ValueError, "init_process_group", "'nccl'", "backend=")
def process_group_by_backend():
    init_process_group("nccl")


@mistake(AttributeError, "all_reduce", "all_reduce_sum")
def all_reduce():
    mge.distributed.all_reduce(X)


@mistake(TypeError, "RandomSampler", "dataset comes first", "got 4")
def sampler_of_a_batch_size():
    DataLoader(ArrayDataset(np.ones(8)), RandomSampler(4))


@mistake(TypeError, "uniform", "low must be a number", "size= is the shape")
def uniform_of_a_shape():
    mge.random.uniform((2, 3))


@mistake(TypeError, "shuffle", "Tensor", "list")
def shuffle_of_a_list():
    mge.random.shuffle([1, 2])


@mistake(AttributeError, "randint", "megengine.random.uniform")
def randint():
    mge.random.randint(0, 10, (2,))


@mistake(TypeError, "trace", "symbolic", "Tensor", "first call")
def trace_with_an_example():
    jit.trace(NET, X)


@mistake(AttributeError, "compile", "megengine.jit.trace")
def compile_of_the_package():
    mge.compile(NET)


@mistake(AttributeError, "float32", "numpy.float32")
def dtype_of_the_package():
    X.astype(mge.float32)


@mistake(ImportError, "nn", "megengine.module")
def nn_imported():
    from megengine import nn  # noqa: F401


@mistake(ImportError, "CrossEntropyLoss", "F.nn.cross_entropy")
def loss_class_imported():
    from megengine.module import CrossEntropyLoss  # noqa: F401


@mistake(ImportError, "CosineAnnealingLR", "LRScheduler")
def schedule_imported():
    from megengine.optimizer.lr_scheduler import CosineAnnealingLR  # noqa: F401


@mistake(ImportError, "Dataset", "megengine.data.dataset.Dataset")
def dataset_imported():
    from megengine.data import Dataset  # noqa: F401


@mistake(RuntimeWarning, "Linear.weight", "no optimizer trains", "weight[...] = value")
def parameter_updated_by_assignment():
    net = M.Linear(3, 2)
    net.weight = net.weight - 0.1  # here


@mistake(TypeError, "mean", "'out'", "NumPy's function", "megengine.functional")
def mean_of_numpy():
    np.mean(X)


@mistake(TypeError, "one_hot", "Tensor", "list")
def one_hot_of_a_list():
    F.one_hot([0, 1], 2)


@mistake(TypeError, "MultiStepLR", "milestones", "list", "got 3")
def schedule_with_a_number():
    MultiStepLR(SGD(NET.parameters(), 0.1), 3)


@mistake(ValueError, "transpose", "F.swapaxes(x, 1, 2)")
def transpose_of_two_axes():
    F.zeros((2, 3, 4)).transpose(1, 2)


@mistake(TypeError, "stack", "number 1 is None")
def stack_with_none():
    F.stack([X, None])


@mistake(TypeError, "LiteNetwork", "LiteConfig", "net.load(path)")
def lite_network_of_a_path():
    LiteNetwork("net.mge")


@mistake(TypeError, "LiteTensor", "LiteLayout", "shapes=x.shape")
def lite_tensor_of_an_array():
    LiteTensor(np.ones(3))


@mistake(AttributeError, "benchmark_kernal", "Did you mean benchmark_kernel?")
def setting_that_is_misspelt():
    mge.config.benchmark_kernal = True


@mistake(TypeError, "normal_", "Tensor", "ndarray")
def init_of_an_array():
    M.init.normal_(np.ones(3))


@mistake(TypeError, "SGD", "'learning_rate'", "lr= is what learning_rate= seems to mean")
def optimizer_with_a_learning_rate():
    SGD(NET.parameters(), learning_rate=0.1)


@mistake(TypeError, "SGD", "'nestrov'", "nesterov= is what nestrov= seems to mean")
def optimizer_option_that_is_misspelt():
    SGD(NET.parameters(), lr=0.1, nestrov=True)


@mistake(TypeError, "autocast", "'dtype'", "low_prec_dtype= is what dtype= seems to mean")
def autocast_with_a_dtype():
    amp.autocast(dtype="bfloat16")


@mistake(TypeError, "flatten", "start_axis= is what start_dim= seems to mean")
def flatten_method_from_dim():
    X.flatten(start_dim=1)


@mistake(TypeError, "clip_grad", "net.parameters()")
def clip_grad_of_a_module():
    clip_grad_norm(NET, 1.0)


@mistake(AttributeError, "data", "x[...] = y")
def value_set_by_data():
    NET.weight.data = np.ones((2, 3), "float32")


@mistake(AttributeError, "inverse", "F.matinv")
def inverse():
    F.inverse(X)


@mistake(AttributeError, "append", "Sequential(*net, more)")
def layer_appended():
    M.Sequential(NET).append(M.ReLU())
