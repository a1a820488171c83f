"""Names that people bring from other frameworks, and what they are called here.

They are not there: type checkers do not know them and ``hasattr`` says no, but for functions of
``megengine.functional``, which stand in to be called. Who uses one is told our way.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

_GRADIENTS = (
    "gradients are recorded by a manager: gm = GradManager().attach(net.parameters()); with gm: ...; gm.backward(loss)"
)
_ATTACH = "a tensor gets a gradient when it is attached: GradManager().attach(x)"
_DEVICE = "x.to('gpu0') copies to a device, megengine.set_default_device('gpu0') sets the one for new tensors"
_NET_DEVICE = "call megengine.set_default_device('gpu0') before the network is made"


def _functions(*names: str) -> dict[str, str]:
    return {name: f"use F.{name}(x)" for name in names}


def _dtypes(**names: str) -> dict[str, str]:
    return {name: f"use x.astype('{dtype}')" for name, dtype in names.items()}


TENSOR = {
    **_functions(
        *"exp log sqrt abs sin cos tan tanh sigmoid relu softmax matmul argmax argmin norm std var cumsum topk sort "
        "argsort squeeze gather scatter split roll maximum minimum".split()
    ),
    **_dtypes(float="float32", half="float16", double="float64", int="int32", long="int64", bool="bool", byte="uint8"),
    "add_": "use x += y",
    "sub_": "use x -= y",
    "mul_": "use x *= y",
    "div_": "use x /= y",
    "zero_": "use x[...] = 0",
    "fill_": "use x[...] = value",
    "copy_": "use x[...] = y",
    "any": "use (x != 0).sum() > 0, or x.numpy().any()",
    "all": "use x.min(), or x.numpy().all()",
    "backward": _GRADIENTS,
    "bmm": "use F.matmul(x, y)",
    "chunk": "use F.split(x, n, axis)",
    "clamp": "use F.clip(x, lower, upper)",
    "clip": "use F.clip(x, lower, upper)",
    "clone": "use F.copy(x)",
    "contiguous": "not needed: tensors have no strides to see; use x itself",
    "cpu": "not needed: x.numpy() gives the array whatever the device; x.to('cpu0') copies",
    "cuda": _DEVICE,
    "data": "use x.detach() to read the value and x[...] = y to set it",
    "dim": "use x.ndim",
    "dot": "use F.dot(x, y), or F.matmul(x, y)",
    "expand": "use F.broadcast_to(x, shape)",
    "grad_fn": _GRADIENTS,
    "index_select": "use x[index]",
    "is_cuda": "use x.device",
    "is_leaf": _ATTACH,
    "masked_fill": "use F.where(mask, value, x)",
    "mm": "use F.matmul(x, y)",
    "numel": "use x.size",
    "permute": "use x.transpose(...) with the axes in their new order",
    "pow": "use x ** y",
    "repeat": "use F.tile(x, reps); F.repeat(x, n) repeats each element",
    "requires_grad_": _ATTACH,
    "t": "use x.T",
    "type": "use x.dtype, or x.astype(dtype)",
    "unsqueeze": "use F.expand_dims(x, axis)",
    "view": "use x.reshape(...)",
    "view_as": "use x.reshape(y.shape)",
}

MODULE = {
    "add_module": "assign it: self.name = module",
    "cpu": _NET_DEVICE,
    "cuda": _NET_DEVICE,
    "half": "use megengine.amp.autocast, or net.load_state_dict with converted arrays",
    "register_buffer": "assign it: self.name = Tensor(...)",
    "register_parameter": "assign it: self.name = Parameter(...)",
    "requires_grad_": "attach the parameters that shall be trained, and no others: GradManager().attach(...)",
    "to": _NET_DEVICE,
}

PACKAGES: dict[str, dict[str, str]] = {
    "megengine": {
        **{
            name: f"it is megengine.functional.{name}"
            for name in "zeros ones full arange linspace eye concat stack exp matmul zeros_like ones_like where".split()
        },
        "cat": "it is megengine.functional.concat",
        "cuda": "megengine.get_device_count('gpu') says how many there are, megengine.set_default_device chooses one",
        "enable_grad": _GRADIENTS,
        "from_numpy": "it is megengine.tensor(array)",
        "manual_seed": "it is megengine.random.seed",
        "nn": "layers are in megengine.module, functions in megengine.functional",
        "no_grad": "nothing is recorded outside of `with gm:` of a GradManager; inside, x.detach() cuts a value off",
        "optim": "it is megengine.optimizer",
        "rand": "it is megengine.random.uniform(size=shape)",
        "randn": "it is megengine.random.normal(size=shape)",
        "to_tensor": "it is megengine.tensor",
    },
    "megengine.functional": {
        "adaptive_avg_pool1d": "use F.adaptive_avg_pool2d with a width of 1",
        "binary_cross_entropy_with_logits": "use F.nn.binary_cross_entropy(pred, label, with_logits=True)",
        "bmm": "use F.matmul",
        "cat": "use F.concat",
        "chunk": "use F.split",
        "cross_entropy": "it is F.nn.cross_entropy",
        "clamp": "use F.clip",
        "interpolate": "it is F.vision.interpolate, F.nn.interpolate too",
        "log_softmax": "use F.logsoftmax",
        "mm": "use F.matmul",
        "mse_loss": "use F.nn.square_loss",
        "nll_loss": "use F.nn.cross_entropy(pred, label, with_logits=False) on probabilities",
        "nonzero": "use F.non_zero",
        "permute": "use F.transpose",
        "rand": "it is megengine.random.uniform(size=shape)",
        "randn": "it is megengine.random.normal(size=shape)",
        "smooth_l1_loss": "use F.nn.l1_loss, or F.where on the absolute difference",
        "unsqueeze": "use F.expand_dims",
        "upsample": "use F.vision.interpolate",
    },
    "megengine.module": {
        "AvgPool1d": "use AvgPool2d with a width of 1",
        "BCELoss": "use F.nn.binary_cross_entropy(pred, label, with_logits=False)",
        "BCEWithLogitsLoss": "use F.nn.binary_cross_entropy(pred, label)",
        "CrossEntropyLoss": "losses are functions: F.nn.cross_entropy(pred, label)",
        "Flatten": "use F.flatten(x, 1) in forward",
        "L1Loss": "losses are functions: F.nn.l1_loss(pred, label)",
        "LogSoftmax": "use F.logsoftmax(x, axis)",
        "MSELoss": "losses are functions: F.nn.square_loss(pred, label)",
        "ModuleDict": "assign a plain dict: self.parts = {'a': module}",
        "ModuleList": "assign a plain list: self.layers = [module, ...]",
        "MultiheadAttention": "it is MultiHeadAttention",
        "Parameter": "it is megengine.Parameter",
        "ParameterList": "assign a plain list: self.scales = [Parameter(...), ...]",
        "Tanh": "use F.tanh(x), or Elemwise('tanh')",
        "Upsample": "use F.vision.interpolate",
    },
    "megengine.optimizer": {
        "RMSprop": "Adadelta, Adagrad, Adam, AdamW, LAMB and SGD are there",
        "StepLR": "use MultiStepLR(optimizer, milestones)",
    },
}

#: Keywords, and what they are called here.
KEYWORDS = {
    "dim": "axis", "dims": "axis", "axes": "axis", "keepdim": "keepdims", "keep_dims": "keepdims", "input": "inp",
    "tensors": "inps", "start_dim": "start_axis", "end_dim": "end_axis", "p": "drop_prob", "inplace": "",
}  # fmt: skip


class Elsewhere:
    """In the place of an attribute that another framework has: reading it tells our way."""

    def __init__(self, name: str, way: str) -> None:
        self.name = name
        self.way = way

    def __get__(self, obj: Any, owner: type) -> NoReturn:
        raise AttributeError(f"'{owner.__name__}' object has no attribute '{self.name}'; {self.way}.")


def explain_attributes(cls: type, ways: dict[str, str]) -> None:
    """Let a class tell our way for names that it does not have."""
    for name, way in ways.items():
        setattr(cls, name, Elsewhere(name, way))


def _stand_in(module: str, name: str, way: str) -> Callable[..., NoReturn]:
    def elsewhere(*args: Any, **kwargs: Any) -> NoReturn:
        raise AttributeError(f"module {module!r} has no attribute {name!r}; {way}.", name=name)

    return elsewhere


def explain_names(names: dict[str, Any]) -> None:
    """Puts functions that tell our way into a package, for those that only other frameworks have there.

    Names that some version of MegEngine had are left alone: programs ask ``hasattr`` for them.
    """
    module = names["__name__"]
    for name, way in PACKAGES[module].items():
        if name not in names:
            names[name] = _stand_in(module, name, way)


def no_attribute(module: str, name: str) -> AttributeError:
    """What a package raises for a name that it does not have."""
    way = PACKAGES.get(module, {}).get(name, "")
    return AttributeError(f"module {module!r} has no attribute {name!r}{f'; {way}' if way else ''}.", name=name)


def unexpected(who: str, given: dict[str, Any], function: Any) -> TypeError:
    """What a call with keywords that ``function`` does not take raises."""
    known = [
        p.name
        for p in inspect.signature(function).parameters.values()
        if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and p.name != "self"
    ]
    ways = []
    for k in given:
        near = [KEYWORDS[k]] if KEYWORDS.get(k) in known else difflib.get_close_matches(k, known, 1)
        ways += [f" {near[0]}= is what {k}= seems to mean." for _ in near]
    way = "".join(ways)
    return TypeError(
        f"{who}: got an unexpected keyword argument {', '.join(map(repr, given))}; it takes {', '.join(known)}.{way}"
    )
