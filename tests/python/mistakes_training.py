"""Gradients and optimizers."""

from __future__ import annotations

import numpy as np
from mistake import ALL, mistake

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import Parameter, Tensor
from megengine.autodiff import Function, GradManager


def network():
    return M.Linear(3, 1)


X = Tensor(np.ones((4, 3), "float32"))


@mistake(RuntimeError, "GradManager.backward", "with gm:", "record()", modes=ALL)
def backward_outside_of_a_record():
    net = network()
    gm = GradManager().attach(net.parameters())
    gm.backward(net(X).mean())


@mistake(RuntimeError, "GradManager.backward", "with gm:", "one backward", modes=ALL)
def backward_twice_in_a_record():
    net = network()
    with GradManager().attach(net.parameters()) as gm:
        loss = net(X).mean()
        gm.backward(loss)
        gm.backward(loss)  # here


@mistake(RuntimeWarning, "GradManager.backward", "none of the 2 attached", "with gm:", modes=ALL)
def loss_computed_before_the_record():
    net = network()
    gm = GradManager().attach(net.parameters())
    loss = net(X).mean()
    for _ in range(3):
        with gm:
            gm.backward(loss)  # here


@mistake(RuntimeWarning, "GradManager.backward", "none of the 1 attached", "detach", modes=ALL)
def loss_that_is_detached():
    w = Parameter([1.0])
    with GradManager().attach(w) as gm:
        gm.backward((w * 2).detach())


@mistake(RuntimeWarning, "GradManager.backward", "nothing is attached", "attach(net.parameters())", modes=ALL)
def backward_without_attached_tensors():
    net = network()
    with GradManager() as gm:
        gm.backward(net(X).mean())


@mistake(TypeError, "GradManager.backward", "float", "loss.item()")
def backward_of_a_number():
    net = network()
    with GradManager().attach(net.parameters()) as gm:
        gm.backward(net(X).mean().item())


@mistake(ValueError, "backward", "[4,1]", "[4]", modes=ALL)
def backward_with_a_gradient_of_another_shape():
    net = network()
    with GradManager().attach(net.parameters()) as gm:
        gm.backward(net(X), F.ones(4))


@mistake(ValueError, "backward", "1", "2", "dy", modes=ALL)
def backward_with_too_many_gradients():
    net = network()
    with GradManager().attach(net.parameters()) as gm:
        gm.backward(net(X), [F.ones((4, 1)), F.ones((4, 1))])


@mistake(TypeError, "attach", "Linear", ".parameters()", modes=ALL)
def attach_a_module():
    GradManager().attach(network())


@mistake(TypeError, "attach", "ndarray", "Tensor", modes=ALL)
def attach_an_array():
    GradManager().attach([np.ones(3)])


@mistake(TypeError, "attach", "str", "named_parameters", "parameters()", modes=ALL)
def attach_names():
    GradManager().attach(p for pair in network().named_parameters() for p in pair)


@mistake(TypeError, "attach", "int32", "floating-point", modes=ALL)
def attach_integers():
    GradManager().attach(Tensor([1, 2]))


@mistake(RuntimeWarning, "attach", "no tensors", "once", "list(", modes=ALL)
def attach_a_generator_that_is_used_up():
    params = network().parameters()
    optim.SGD(params, lr=0.1)
    GradManager().attach(params)


@mistake(ValueError, "SGD", "no parameters", "once", "list(", modes=ALL)
def optimize_a_generator_that_is_used_up():
    params = network().parameters()
    GradManager().attach(params)
    optim.SGD(params, lr=0.1)


@mistake(RuntimeError, "GradManager", "already", "with gm:", "release()", modes=ALL)
def enter_a_manager_twice():
    with GradManager() as gm:
        with gm:  # here
            pass


@mistake(RuntimeError, "GradManager", "already", "release()", modes=ALL)
def record_twice():
    gm = GradManager()
    gm.record()
    try:
        gm.record()  # here
    finally:
        gm.release()


@mistake(ValueError, "attach", "callback", "(3,)", "(1,)", "shrink", modes=ALL)
def callback_that_returns_another_shape():
    def shrink(tensor, grad):
        return grad.sum(axis=0, keepdims=True)

    w = Parameter([1.0, 2.0, 3.0])
    with GradManager().attach(w, callbacks=shrink) as gm:
        gm.backward((w * 2).sum())


@mistake(RuntimeWarning, "attach", "callback", "show", "None", "return grad", modes=ALL)
def callback_that_returns_nothing():
    def show(tensor, grad):
        grad.numpy()

    w = Parameter([1.0, 2.0, 3.0])
    with GradManager().attach(w, callbacks=show) as gm:
        gm.backward((w * 2).sum())


@mistake(TypeError, "attach", "callback", "ndarray", "Tensor", modes=ALL)
def callback_that_returns_an_array():
    w = Parameter([1.0, 2.0, 3.0])
    with GradManager().attach(w, callbacks=lambda t, g: g.numpy()) as gm:
        gm.backward((w * 2).sum())


@mistake(TypeError, "attach", "callbacks", "str", "callback(tensor, grad)", modes=ALL)
def callback_that_cannot_be_called():
    GradManager().attach(Parameter([1.0]), callbacks="print")


@mistake(RuntimeWarning, "NumPy", "gradient", "F.exp", "detach", modes=ALL)
def numpy_in_the_middle_of_a_graph():
    w = Parameter([1.0])
    with GradManager().attach(w) as gm:
        loss = w * 0
        for _ in range(3):
            loss = loss + np.exp(w * 2)  # here
        gm.backward(loss)


@mistake(RuntimeWarning, "NumPy", "gradient", "detach", modes=ALL)
def numpy_concatenate_in_the_middle_of_a_graph():
    w = Parameter([1.0])
    with GradManager().attach(w) as gm:
        both = Tensor(np.concatenate([w * 2, w * 3]))  # here
        gm.backward((both * w).sum())


@mistake(RuntimeWarning, "SGD.step", "none of the 2 parameters", "backward", modes=ALL)
def step_without_backward():
    opt = optim.SGD(network().parameters(), lr=0.1)
    for _ in range(3):
        opt.step()  # here


@mistake(RuntimeWarning, "Adam.step", "none of the 2 parameters", "clear_grad", modes=ALL)
def step_after_clear_grad():
    net = network()
    opt = optim.Adam(net.parameters(), lr=0.1)
    with GradManager().attach(net.parameters()) as gm:
        gm.backward(net(X).mean())
    opt.clear_grad()
    opt.step()


@mistake(RuntimeWarning, "SGD.step", "never attached", "bias", "gm.attach", modes=ALL)
def parameter_that_was_never_attached():
    net = network()
    opt = optim.SGD(net.parameters(), lr=0.1)
    gm = GradManager().attach(net.weight)
    for _ in range(3):
        with gm:
            gm.backward(net(X).mean())
        opt.step()  # here


@mistake(TypeError, "SGD", "Linear", ".parameters()", modes=ALL)
def optimize_a_module():
    optim.SGD(network(), lr=0.1)


@mistake(TypeError, "SGD", "Tensor", "Parameter", modes=ALL)
def optimize_a_tensor():
    optim.SGD([Tensor([1.0])], lr=0.1)


@mistake(TypeError, "SGD", "tuple", "named_parameters", "parameters()", modes=ALL)
def optimize_named_parameters():
    optim.SGD(network().named_parameters(), lr=0.1)


@mistake(ValueError, "Adam", "no parameters", modes=ALL)
def optimize_nothing():
    optim.Adam([], lr=0.1)


@mistake(TypeError, "lr", modes=ALL)
def optimize_without_a_learning_rate():
    optim.SGD(network().parameters())


@mistake(ValueError, "SGD", "lr", "-0.1", modes=ALL)
def optimize_with_a_negative_learning_rate():
    optim.SGD(network().parameters(), lr=-0.1)


@mistake(TypeError, "SGD", "lr", "'0.1'", modes=ALL)
def optimize_with_a_learning_rate_in_quotes():
    optim.SGD(network().parameters(), lr="0.1")


@mistake(ValueError, "SGD", "momentum", "-1", modes=ALL)
def optimize_with_a_negative_momentum():
    optim.SGD(network().parameters(), lr=0.1, momentum=-1)


@mistake(ValueError, "SGD", "nesterov", "momentum", modes=ALL)
def optimize_with_nesterov_alone():
    optim.SGD(network().parameters(), lr=0.1, nesterov=True)


@mistake(ValueError, "Adam", "betas", "1.5", modes=ALL)
def adam_with_a_beta_above_1():
    optim.Adam(network().parameters(), lr=0.1, betas=(0.9, 1.5))


@mistake(ValueError, "Adam", "betas", "0.9", "two", modes=ALL)
def adam_with_one_beta():
    optim.Adam(network().parameters(), lr=0.1, betas=(0.9,))


@mistake(ValueError, "SGD", "twice", "weight", modes=ALL)
def optimize_a_parameter_twice():
    net = network()
    optim.SGD([net.weight, net.weight], lr=0.1)


@mistake(TypeError, "SGD", "set", "list", modes=ALL)
def optimize_a_set():
    optim.SGD([{"params": set(network().parameters())}], lr=0.1)


@mistake(ValueError, "SGD", "params", "lr", modes=ALL)
def optimize_a_group_without_parameters():
    optim.SGD([{"lr": 0.1}], lr=0.1)


@mistake(ValueError, "SGD", "grad", "(2,)", "(1, 3)", modes=ALL)
def step_with_a_gradient_of_another_shape():
    net = network()
    net.weight.grad = F.ones(2)
    optim.SGD(net.weight, lr=0.1).step()


@mistake(ValueError, "load_state_dict", "SGD", "1", "2", modes=ALL)
def load_the_state_of_an_optimizer_with_more_groups():
    a, b = network(), network()
    one = optim.SGD(a.parameters(), lr=0.1)
    two = optim.SGD([{"params": a.parameters()}, {"params": b.parameters()}], lr=0.1)
    one.load_state_dict(two.state_dict())


@mistake(ValueError, "load_state_dict", "SGD", "betas", modes=ALL)
def load_the_state_of_another_optimizer():
    net = network()
    adam = optim.Adam(net.parameters(), lr=0.1)
    optim.SGD(net.parameters(), lr=0.1).load_state_dict(adam.state_dict())


@mistake(KeyError, "load_state_dict", "SGD", "param_groups", "opt.state_dict()")
def load_the_state_of_a_module_into_an_optimizer():
    net = network()
    optim.SGD(net.parameters(), lr=0.1).load_state_dict(net.state_dict())


@mistake(ValueError, "MultiStepLR", "milestones", "[20, 10]", modes=ALL)
def milestones_that_fall():
    optim.MultiStepLR(optim.SGD(network().parameters(), lr=0.1), [20, 10])


@mistake(TypeError, "MultiStepLR", "Optimizer", "Linear", modes=ALL)
def schedule_a_module():
    optim.MultiStepLR(network(), [10, 20])


@mistake(ValueError, "clip_grad_norm", "max_norm", "-1", modes=ALL)
def clip_to_a_negative_norm():
    net = network()
    net.weight.grad = F.ones((1, 3))
    optim.clip_grad_norm(net.weight, -1.0)


@mistake(TypeError, "Double", "Tensor", "float", modes=ALL)
def function_of_a_number():
    class Double(Function):
        def forward(self, x):
            return x * 2

        def backward(self, dy):
            return dy * 2

    return Double()(2.0)


@mistake(ValueError, ".backward", "1", "2", modes=ALL)
def function_that_returns_a_gradient_too_few():
    class Times(Function):
        def forward(self, x, y):
            return x * y

        def backward(self, dy):
            return (dy,)

    w = Parameter([1.0])
    with GradManager().attach(w) as gm:
        gm.backward(Times()(w, w))


@mistake(TypeError, "Double.forward", "ndarray", modes=ALL)
def function_that_returns_an_array():
    class Double(Function):
        def forward(self, x):
            return x.numpy() * 2

        def backward(self, dy):
            return dy * 2

    w = Parameter([1.0])
    with GradManager().attach(w):
        return Double()(w)


@mistake(ValueError, "amp", "low_prec_dtype", "'float23'", "float16", modes=ALL)
def autocast_to_a_misspelt_dtype():
    with mge.amp.autocast(low_prec_dtype="float23"):  # here
        pass


@mistake(TypeError, "attach", "method", "net.parameters()", modes=ALL)
def attach_a_method():
    GradManager().attach(network().parameters)


@mistake(TypeError, "SGD", "method", "net.parameters()", modes=ALL)
def optimize_a_method():
    optim.SGD(network().parameters, lr=0.1)


@mistake(TypeError, "SGD.step", "grad of weight", "float", modes=ALL)
def step_with_a_number_as_gradient():
    net = network()
    net.weight.grad = 3.0
    optim.SGD(net.weight, lr=0.1).step()


@mistake(TypeError, "SGD", "lr", "None", modes=ALL)
def optimize_with_a_learning_rate_of_none():
    optim.SGD(network().parameters(), lr=None)


@mistake(NotImplementedError, "Double.backward", "not defined", modes=ALL)
def function_without_backward():
    class Double(Function):
        def forward(self, x):
            return x * 2

    w = Parameter([1.0])
    with GradManager().attach(w) as gm:
        gm.backward(Double()(w))


@mistake(RuntimeWarning, "GradManager.backward", "before they were attached", modes=ALL)
def attach_after_the_loss():
    w = Parameter([1.0])
    with GradManager() as gm:
        loss = w * 2
        gm.attach(w)
        gm.backward(loss)
