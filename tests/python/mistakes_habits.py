"""What people write who come from other frameworks: the error names our way."""

from __future__ import annotations

import numpy as np
from mistake import mistake

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import Parameter, Tensor

X = Tensor(np.ones((2, 3), "float32"))


@mistake(AttributeError, "view", "reshape")
def view():
    X.view(3, 2)


@mistake(AttributeError, "cuda", "device")
def cuda():
    X.cuda()


@mistake(AttributeError, "cpu", ".numpy()")
def cpu():
    X.cpu().numpy()


@mistake(AttributeError, "backward", "GradManager", "gm.backward(")
def backward_of_a_tensor():
    X.mean().backward()


@mistake(AttributeError, "requires_grad", "GradManager", "attach")
def requires_grad():
    X.requires_grad = True


@mistake(AttributeError, "requires_grad_", "GradManager", "attach")
def requires_grad_in_place():
    X.requires_grad_()


@mistake(RuntimeError, "requires_grad", "GradManager", "attach")
def tensor_that_requires_grad():
    Tensor([1.0], requires_grad=True)


@mistake(TypeError, "size", "x.shape")
def size_as_a_method():
    X.size()


@mistake(ValueError, "cuda", "gpu0", "cpu0")
def to_cuda():
    X.to("cuda")


@mistake(ValueError, "cuda:0", "gpu0")
def tensor_on_cuda():
    Tensor([1.0], device="cuda:0")


@mistake(TypeError, "to", "float32", "astype")
def to_a_dtype():
    X.to(np.float32)


@mistake(AttributeError, "permute", "transpose")
def permute():
    X.permute(1, 0)


@mistake(AttributeError, "unsqueeze", "expand_dims")
def unsqueeze():
    X.unsqueeze(0)


@mistake(AttributeError, "squeeze", "F.squeeze")
def squeeze_method():
    X.squeeze()


@mistake(AttributeError, "float", "astype")
def float_method():
    X.float()


@mistake(AttributeError, "long", "astype")
def long_method():
    X.long()


@mistake(AttributeError, "clone", "F.copy")
def clone():
    X.clone()


@mistake(AttributeError, "contiguous", "not needed")
def contiguous():
    X.contiguous()


@mistake(AttributeError, "data", "detach()")
def data_of_a_tensor():
    return X.data


@mistake(AttributeError, "exp", "F.exp")
def exp_method():
    X.exp()


@mistake(AttributeError, "matmul", "F.matmul")
def matmul_method():
    X.matmul(X)


@mistake(AttributeError, "add_", "+=")
def in_place_method():
    X.add_(1)


@mistake(AttributeError, "zero_", "[...] = 0")
def zero_in_place():
    X.zero_()


@mistake(AttributeError, "argmax", "F.argmax")
def argmax_method():
    X.argmax()


@mistake(TypeError, "sum", "dim", "axis")
def sum_over_dim():
    F.sum(X, dim=1)


@mistake(TypeError, "mean", "dim", "axis", "keepdims")
def mean_method_over_dim():
    X.mean(dim=1, keepdim=True)


@mistake(TypeError, "max", "dim", "axis")
def max_method_over_dim():
    X.max(dim=1)


@mistake(TypeError, "softmax", "dim", "axis")
def softmax_over_dim():
    F.softmax(X, dim=1)


@mistake(TypeError, "concat", "dim", "axis")
def concat_along_dim():
    F.concat([X, X], dim=1)


@mistake(TypeError, "stack", "dim", "axis")
def stack_along_dim():
    F.stack([X, X], dim=1)


@mistake(TypeError, "split", "dim", "axis")
def split_along_dim():
    F.split(X, 2, dim=0)


@mistake(TypeError, "argmax", "dim", "axis")
def argmax_over_dim():
    F.argmax(X, dim=1)


@mistake(TypeError, "norm", "dim", "axis")
def norm_over_dim():
    F.norm(X, dim=1)


@mistake(TypeError, "expand_dims", "'axis'")
def expand_dims_at_dim():
    F.expand_dims(X, dim=0)


@mistake(AttributeError, "cat", "F.concat")
def cat():
    F.cat([X, X])


@mistake(AttributeError, "mse_loss", "F.nn.square_loss")
def mse_loss():
    F.mse_loss(X, X)


@mistake(AttributeError, "log_softmax", "F.logsoftmax")
def log_softmax():
    F.log_softmax(X)


@mistake(AttributeError, "nll_loss", "cross_entropy")
def nll_loss():
    F.nll_loss(X, X)


@mistake(AttributeError, "binary_cross_entropy_with_logits", "with_logits=True")
def binary_cross_entropy_with_logits():
    F.binary_cross_entropy_with_logits(X, X)


@mistake(AttributeError, "sigmoid_cross_entropy", "has no attribute")
def function_of_nobody():
    F.sigmoid_cross_entropy(X, X)


@mistake(AttributeError, "CrossEntropyLoss", "F.nn.cross_entropy")
def cross_entropy_module():
    M.CrossEntropyLoss()


@mistake(AttributeError, "ModuleList", "list")
def module_list():
    M.ModuleList([M.ReLU()])


@mistake(AttributeError, "Flatten", "F.flatten")
def flatten_module():
    M.Flatten()


@mistake(AttributeError, "Tanh", "F.tanh")
def tanh_module():
    M.Tanh()


@mistake(AttributeError, "nn", "megengine.module")
def nn_package():
    return mge.nn.Linear(2, 3)


@mistake(AttributeError, "optim", "megengine.optimizer")
def optim_package():
    return mge.optim.SGD


@mistake(AttributeError, "no_grad", "GradManager")
def no_grad():
    with mge.no_grad():  # here
        pass


@mistake(AttributeError, "from_numpy", "megengine.tensor")
def from_numpy():
    mge.from_numpy(np.ones(2))


@mistake(AttributeError, "zeros", "megengine.functional.zeros")
def zeros_of_the_package():
    mge.zeros(2)


@mistake(AttributeError, "manual_seed", "megengine.random.seed")
def manual_seed():
    mge.manual_seed(1)


@mistake(AttributeError, "cuda", "megengine.get_device_count")
def cuda_package():
    return mge.cuda.is_available()


@mistake(AttributeError, "cuda", "set_default_device")
def module_to_cuda():
    M.Linear(2, 3).cuda()


@mistake(AttributeError, "to", "set_default_device")
def module_to_a_device():
    M.Linear(2, 3).to("cpu0")


@mistake(AttributeError, "register_buffer", "self.name = Tensor")
def register_buffer():
    M.Linear(2, 3).register_buffer("mean", X)


@mistake(AttributeError, "register_parameter", "self.name = Parameter")
def register_parameter():
    M.Linear(2, 3).register_parameter("scale", Parameter([1.0]))


@mistake(AttributeError, "add_module", "self.name = module")
def add_module():
    M.Sequential().add_module("fc", M.Linear(2, 3))


@mistake(TypeError, "Dropout", "p", "drop_prob")
def dropout_p():
    M.Dropout(p=0.5)


@mistake(DeprecationWarning, "zero_grad", "clear_grad")
def optimizer_zero_grad():
    optim.SGD(M.Linear(2, 3).parameters(), lr=0.1).zero_grad()


@mistake(NotImplementedError, "GradManager.backward", "Optimizer.backward")
def optimizer_backward():
    optim.SGD(M.Linear(2, 3).parameters(), lr=0.1).backward(X)


@mistake(AttributeError, "StepLR", "MultiStepLR")
def step_lr():
    optim.StepLR(optim.SGD(M.Linear(2, 3).parameters(), lr=0.1), 10)


@mistake(AttributeError, "cross_entropy", "F.nn.cross_entropy")
def cross_entropy_of_the_package():
    F.cross_entropy(X, X)


@mistake(AttributeError, "interpolate", "F.nn.interpolate")
def interpolate_of_the_package():
    F.interpolate(X, 4)


@mistake(AttributeError, "randn", "megengine.random.normal")
def randn():
    F.randn(2, 3)


@mistake(AttributeError, "to_tensor", "megengine.tensor")
def to_tensor():
    mge.to_tensor([1.0])


@mistake(ValueError, "gpu0", "there is none", "libcuda", "cpu0")
def tensor_on_a_device_that_is_not_there():
    Tensor([1.0], device="gpu0")
