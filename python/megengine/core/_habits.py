"""Names that people bring from other frameworks, and what they are called here.

They are not there: type checkers do not know them, ``dir`` does not list them and ``hasattr`` says no, but for
functions of ``megengine.functional``, which stand in to be called. Who uses one is told our way.
"""

from __future__ import annotations

import difflib
import inspect
import opcode
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NoReturn

_GRADIENTS = (
    "gradients are recorded by a manager: gm = GradManager().attach(net.parameters()); with gm: ...; gm.backward(loss)"
)
_ATTACH = "a tensor gets a gradient when it is attached: GradManager().attach(x)"
_DEVICE = "x.to('gpu0') copies to a device, megengine.set_default_device('gpu0') sets the one for new tensors"
_NET_DEVICE = "call megengine.set_default_device('gpu0') before the network is made"
_NOT_RECORDED = "nothing is recorded outside of `with gm:` of a GradManager; inside, x.detach() cuts a value off"
_HOOK = "GradManager().attach(x, callbacks=lambda x, grad: ...) calls back with the gradient"
_STRIDES = "not needed: tensors have no strides to see; use x itself"
_SAMPLERS = "samplers know it: megengine.data.RandomSampler(dataset, batch_size)"
_DTYPE = "a dtype is a name, as in x.astype('float32'), or NumPy's, numpy.float32"
_SCHEDULE = (
    "use MultiStepLR, or derive from LRScheduler; opt.param_groups[i]['lr'] = value is what a schedule does in the end"
)
_OPTIMIZERS = "Adadelta, Adagrad, Adam, AdamW, LAMB and SGD are there"
_RAND = {
    "rand": "it is megengine.random.uniform(size=shape)",
    "randn": "it is megengine.random.normal(size=shape)",
    "randint": "it is megengine.random.uniform(low, high, size=shape).astype('int32')",
}
_LOSSES = {
    "binary_cross_entropy_with_logits": "use F.nn.binary_cross_entropy(pred, label, with_logits=True)",
    "huber_loss": "use F.where on the absolute difference",
    "kl_div": "use F.sum(p * (F.log(p) - logq))",
    "mse_loss": "use F.nn.square_loss",
    "nll_loss": "use F.nn.cross_entropy(pred, label, with_logits=False) on probabilities",
    "smooth_l1_loss": "use F.nn.l1_loss, or F.where on the absolute difference",
}
_SOLE = {  # functions that have another name or place here
    "avg_pool1d": "use F.avg_pool2d with a width of 1",
    "bmm": "use F.matmul",
    "cat": "use F.concat",
    "chunk": "use F.split",
    "clamp": "use F.clip",
    "conv_transpose1d": "use F.conv_transpose2d with a width of 1",
    "elu": "use F.where(x > 0, x, alpha * F.expm1(x))",
    "fold": "use F.sliding_window_transpose",
    "glu": "use a * F.sigmoid(b) of a, b = F.split(x, 2, axis)",
    "grid_sample": "use F.vision.remap, whose map holds pixels (x, y)",
    "hardsigmoid": "it is F.hsigmoid",
    "hardswish": "it is F.hswish",
    "interpolate": "it is F.vision.interpolate, F.nn.interpolate too",
    "log_softmax": "use F.logsoftmax",
    "max_pool1d": "use F.max_pool2d with a width of 1",
    "mm": "use F.matmul",
    "nonzero": "use F.non_zero",
    "permute": "use F.transpose",
    "repeat_interleave": "use F.repeat",
    "rsqrt": "use 1 / F.sqrt(x)",
    "scaled_dot_product_attention": "use F.softmax(q @ k.transpose(...) * scale) @ v, or module.MultiHeadAttention",
    "swish": "it is F.silu",
    "tril": "use F.where with a mask, as F.arange(n) <= F.expand_dims(F.arange(n), 1)",
    "triu": "use F.where with a mask, as F.arange(n) >= F.expand_dims(F.arange(n), 1)",
    "unfold": "use F.sliding_window",
    "unsqueeze": "use F.expand_dims",
    "upsample": "use F.vision.interpolate",
    "view": "use F.reshape",
    **dict.fromkeys(
        ("all", "any"), "use x.numpy().all() or .any(); F.min and F.max of a mask as int32 keep a graph whole"
    ),
    **dict.fromkeys(("vstack", "hstack", "dstack", "row_stack"), "use F.concat, along the axis that grows"),
    **dict.fromkeys(("median", "unique", "bincount", "histc"), "use NumPy's on x.numpy(); it has no gradient"),
    **{
        name: f"it is F.{ours}"
        for name, ours in {
            "amax": "max",
            "amin": "min",
            "eq": "equal",
            "ne": "not_equal",
            "gt": "greater",
            "ge": "greater_equal",
            "lt": "less",
            "le": "less_equal",
            "inverse": "matinv",
            "argwhere": "non_zero",
            "diagonal": "diag",
            "expand": "broadcast_to",
            "movedim": "transpose",
            "true_divide": "div",
            "fmod": "mod",
        }.items()
    },
    "cosine_similarity": "use F.sum(F.normalize(x, axis=1) * F.normalize(y, axis=1), axis=1)",
    "empty": "use F.zeros",
    "flip": "use x[::-1], or x[:, ::-1] along the second axis",
    "hardtanh": "use F.clip(x, -1, 1)",
    "index_select": "use x[index]",
    "masked_fill": "use F.where(mask, value, x)",
    "masked_select": "use x[mask]",
    "mish": "use x * F.tanh(F.softplus(x))",
    "outer": "use F.expand_dims(x, 1) * y",
    "softmin": "use F.softmax(-x, axis)",
}


def _in_place(*names: str) -> dict[str, str]:
    return {f"{name}_": f"functions make new tensors: x = F.{name}(x)" for name in names}


def _functions(*names: str) -> dict[str, str]:
    return {name: f"use F.{name}(x)" for name in names}


def _dtypes(**names: str) -> dict[str, str]:
    return {name: f"use x.astype('{dtype}')" for name, dtype in names.items()}


TENSOR = {
    **_functions(
        *"exp log sqrt abs sin cos tan tanh sigmoid relu softmax matmul argmax argmin norm std var cumsum topk sort "
        "argsort squeeze gather scatter split roll maximum minimum floor ceil round sign square log1p expm1 erf sinh "
        "cosh asin acos atan isnan isinf copy tile".split()
    ),
    **_in_place("relu", "sigmoid", "tanh", "exp", "log", "sqrt", "abs", "sin", "cos", "floor", "ceil", "round"),
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
    **{
        name: f"use x {sign} y"
        for name, sign in {
            "add": "+",
            "sub": "-",
            "mul": "*",
            "div": "/",
            "eq": "==",
            "ne": "!=",
            "gt": ">",
            "ge": ">=",
            "lt": "<",
            "le": "<=",
        }.items()
    },
    **dict.fromkeys(
        ("normal_", "uniform_"), "module.init fills tensors: M.init.normal_(x), M.init.uniform_(x, low, high)"
    ),
    **dict.fromkeys(("retain_grad", "register_hook"), _HOOK),
    **dict.fromkeys(("is_contiguous", "stride"), _STRIDES),
    "backward": _GRADIENTS,
    "bmm": "use F.matmul(x, y)",
    "cat": "use F.concat([x, y], axis)",
    "chunk": "use F.split(x, n, axis)",
    "clamp": "use F.clip(x, lower, upper)",
    "clamp_": "functions make new tensors: x = F.clip(x, lower, upper)",
    "clip": "use F.clip(x, lower, upper)",
    "clone": "use F.copy(x)",
    "contiguous": _STRIDES,
    "cpu": "not needed: x.numpy() gives the array whatever the device; x.to('cpu0') copies",
    "cuda": _DEVICE,
    "data": "use x.detach() to read the value and x[...] = y to set it",
    "dim": "use x.ndim",
    "dot": "use F.dot(x, y), or F.matmul(x, y)",
    "detach_": "use x = x.detach()",
    "element_size": "use x.dtype.itemsize",
    "expand": "use F.broadcast_to(x, shape)",
    "expand_as": "use F.broadcast_to(x, y.shape)",
    "expand_dims": "use F.expand_dims(x, axis)",
    "grad_fn": _GRADIENTS,
    **dict.fromkeys(("storage", "data_ptr"), "memory is not shown; x.numpy() copies the value"),
    **dict.fromkeys(("squeeze_", "unsqueeze_", "t_", "transpose_"), "functions make new tensors: x = x.reshape(...)"),
    **{name: f"use F.{name}(x, axis)" for name in ("logsumexp", "logsoftmax")},
    **{name: f"use F.{name}(x)" for name in ("logical_not", "diag")},
    "amax": "use x.max(axis)",
    "amin": "use x.min(axis)",
    "diagonal": "use F.diag(x)",
    "flip": "use x[::-1], or x[:, ::-1] along the second axis",
    "index_add": "use F.scatter, or a product with F.one_hot(index, n)",
    "index_select": "use x[index]",
    "is_cuda": "use x.device",
    "is_leaf": _ATTACH,
    "log_softmax": "use F.logsoftmax(x, axis)",
    "inverse": "use F.matinv(x)",
    "masked_fill": "use F.where(mask, value, x)",
    "median": "use numpy.median(x.numpy()); it has no gradient",
    "movedim": "use x.transpose(...) with the axes in their new order",
    "narrow": "use slices: x[start : start + length]",
    "outer": "use F.expand_dims(x, 1) * y",
    "masked_fill_": "use x[mask] = value",
    "masked_select": "use x[mask]",
    "mm": "use F.matmul(x, y)",
    "mT": "use F.swapaxes(x, -1, -2)",
    "new_ones": "use F.ones(shape, dtype=x.dtype, device=x.device)",
    "new_zeros": "use F.zeros(shape, dtype=x.dtype, device=x.device)",
    "nonzero": "use F.non_zero(x)",
    "numel": "use x.size",
    "permute": "use x.transpose(...) with the axes in their new order",
    "pin_memory": "not needed; use x itself",
    "pow": "use x ** y",
    "ravel": "use x.flatten()",
    "repeat": "use F.tile(x, reps); F.repeat(x, n) repeats each element",
    "repeat_interleave": "use F.repeat(x, n, axis)",
    "requires_grad_": _ATTACH,
    "rsqrt": "use 1 / F.sqrt(x)",
    "scatter_": "functions make new tensors: x = F.scatter(x, axis, index, source)",
    "share_memory_": "processes exchange NumPy arrays; x.numpy() gives one",
    "stack": "use F.stack([x, y], axis)",
    "swapaxes": "use F.swapaxes(x, axis1, axis2)",
    "t": "use x.T",
    "take": "use x[index], or F.gather(x, axis, index)",
    "type": "use x.dtype, or x.astype(dtype)",
    "type_as": "use x.astype(y.dtype)",
    "unbind": "use list(x), or F.split(x, n, axis)",
    "unsqueeze": "use F.expand_dims(x, axis)",
    "values": "x.max() and x.min() give the values, F.argmax and F.argmin the places",
    "view": "use x.reshape(...)",
    "view_as": "use x.reshape(y.shape)",
}

MODULE = {
    "add_module": "assign it: self.name = module",
    **dict.fromkeys(
        ("bfloat16", "double", "float"),
        "parameters are float32; megengine.amp.autocast computes in 16 bits, x.astype(dtype) converts a tensor",
    ),
    "cpu": _NET_DEVICE,
    "cuda": _NET_DEVICE,
    "half": "use megengine.amp.autocast, or net.load_state_dict with converted arrays",
    **dict.fromkeys(("append", "extend", "insert"), "Sequential(*net, more) makes a longer one"),
    "register_buffer": "assign it: self.name = Tensor(...)",
    "register_parameter": "assign it: self.name = Parameter(...)",
    "requires_grad_": "attach the parameters that shall be trained, and no others: GradManager().attach(...)",
    "to": _NET_DEVICE,
}

PACKAGES: dict[str, dict[str, str]] = {
    "megengine": {
        **{
            name: f"it is megengine.functional.{name}"
            for name in "zeros ones full arange linspace eye concat stack exp matmul zeros_like ones_like where "
            "relu sigmoid softmax sum mean sqrt abs argmax split reshape transpose einsum meshgrid".split()
        },
        **_RAND,
        **dict.fromkeys(("float16", "float32", "float64", "int8", "int16", "int32", "int64", "long", "uint8"), _DTYPE),
        **dict.fromkeys(("enable_grad", "autograd", "grad"), _GRADIENTS),
        **dict.fromkeys(("no_grad", "inference_mode", "set_grad_enabled"), _NOT_RECORDED),
        **dict.fromkeys(
            ("FloatTensor", "from_numpy", "to_tensor", "as_tensor", "array"), "it is megengine.tensor(array)"
        ),
        "LongTensor": "it is megengine.tensor(array, dtype='int32')",
        "backends": "megengine.config and megengine.device have the settings",
        "cat": "it is megengine.functional.concat",
        "compile": "it is megengine.jit.trace(function)",
        "cuda": "megengine.get_device_count('gpu') says how many there are, megengine.set_default_device chooses one",
        "is_available": "megengine.get_device_count('gpu') says how many devices there are",
        "manual_seed": "it is megengine.random.seed",
        "nn": "layers are in megengine.module, functions in megengine.functional",
        "optim": "it is megengine.optimizer",
        "onnx": "jit.trace(net, capture_as_const=True) and its dump write a model file",
        "set_default_dtype": "tensors made of Python floats are float32; dtype= says another one",
        "vision": "image transforms are in megengine.data.transform, functions in megengine.functional.vision",
    },
    "megengine.functional": {
        **_LOSSES,
        **_SOLE,
        **_RAND,
        **_in_place("relu", "sigmoid", "tanh", "dropout", "leaky_relu", "relu6"),
        "cross_entropy": "it is F.nn.cross_entropy",
        "hinge_loss": "it is F.loss.hinge_loss",
        "l1_loss": "it is F.nn.l1_loss",
        "binary_cross_entropy": "it is F.nn.binary_cross_entropy",
    },
    "megengine.functional.nn": {**_LOSSES, **_SOLE, "ctc_loss": "it is F.loss.ctc_loss"},
    "megengine.module": {
        "AvgPool1d": "use AvgPool2d with a width of 1",
        "BCELoss": "use F.nn.binary_cross_entropy(pred, label, with_logits=False)",
        "BCEWithLogitsLoss": "use F.nn.binary_cross_entropy(pred, label)",
        "BatchNorm3d": "BatchNorm2d takes (N, C, D * H, W); the statistics are the same",
        "ConvTranspose1d": "use ConvTranspose2d with a width of 1",
        "CrossEntropyLoss": "losses are functions: F.nn.cross_entropy(pred, label)",
        "DataParallel": "processes share the work: megengine.distributed.launcher and make_allreduce_cb",
        "Dropout2d": "use Dropout",
        "ELU": "use F.where(x > 0, x, alpha * F.expm1(x))",
        "Flatten": "use F.flatten(x, 1) in forward",
        "GRU": "LSTM and RNN are there",
        "Hardsigmoid": "use F.hsigmoid(x)",
        "Hardswish": "use F.hswish(x)",
        "KLDivLoss": "losses are functions: F.sum(p * (F.log(p) - logq))",
        "L1Loss": "losses are functions: F.nn.l1_loss(pred, label)",
        "LogSoftmax": "use F.logsoftmax(x, axis)",
        "MSELoss": "losses are functions: F.nn.square_loss(pred, label)",
        "MaxPool1d": "use MaxPool2d with a width of 1",
        "ModuleDict": "assign a plain dict: self.parts = {'a': module}",
        "ModuleList": "assign a plain list: self.layers = [module, ...]",
        "MultiheadAttention": "it is MultiHeadAttention",
        "NLLLoss": "losses are functions: F.nn.cross_entropy(pred, label, with_logits=False) on probabilities",
        "Parameter": "it is megengine.Parameter",
        "ParameterList": "assign a plain list: self.scales = [Parameter(...), ...]",
        "ReLU6": "use F.relu6(x)",
        "SmoothL1Loss": "losses are functions: F.nn.l1_loss(pred, label), or F.where on the absolute difference",
        "Softplus": "use F.softplus(x)",
        "Swish": "it is SiLU",
        "Tanh": "use F.tanh(x), or Elemwise('tanh')",
        "Tensor": "it is megengine.Tensor",
        **dict.fromkeys(
            ("Transformer", "TransformerEncoder", "TransformerEncoderLayer", "TransformerDecoderLayer"),
            "MultiHeadAttention and LayerNorm are there; examples/transformer_lm.py builds one of them",
        ),
        "Upsample": "use F.vision.interpolate",
        "ZeroPad2d": "it is Pad",
        "functional": "it is megengine.functional",
        "utils": "clip_grad_norm and clip_grad_value are in megengine.optimizer",
    },
    "megengine.module.init": {
        **{
            name: f"it is {name}_, which fills a tensor"
            for name in (
                "xavier_uniform",
                "xavier_normal",
                "msra_uniform",
                "msra_normal",
                "zeros",
                "ones",
            )
        },
        **dict.fromkeys(("kaiming_normal_", "kaiming_normal"), "it is msra_normal_"),
        **dict.fromkeys(("kaiming_uniform_", "kaiming_uniform"), "it is msra_uniform_"),
        **dict.fromkeys(("constant_", "constant"), "it is fill_(tensor, value)"),
        "trunc_normal_": "use normal_, and F.clip on the result",
    },
    "megengine.optimizer": {
        **dict.fromkeys(("RMSprop", "Adamax", "NAdam", "Rprop", "LBFGS"), _OPTIMIZERS),
        "StepLR": "use MultiStepLR(optimizer, milestones)",
        **dict.fromkeys(
            ("CosineAnnealingLR", "ExponentialLR", "LambdaLR", "OneCycleLR", "LinearLR", "ReduceLROnPlateau"), _SCHEDULE
        ),
        "clip_grad_norm_": "it is clip_grad_norm",
        "clip_grad_value_": "it is clip_grad_value",
    },
    "megengine.random": {
        **_RAND,
        "choice": "use x[megengine.random.permutation(n)[:k]]",
        "manual_seed": "it is megengine.random.seed",
        "randperm": "it is megengine.random.permutation(n)",
    },
    "megengine.jit": {
        "script": "trace(function) records what a call does; there is no language of its own",
        "save": "trace(net, capture_as_const=True), called once, has dump(path)",
        "load": "megengine.utils.network.Network.load reads a dumped model, megenginelite runs it",
    },
    "megengine.data": {
        "Dataset": "it is megengine.data.dataset.Dataset",
        "IterableDataset": "it is megengine.data.dataset.StreamDataset",
        "TensorDataset": "it is megengine.data.dataset.ArrayDataset, of NumPy arrays",
        "Subset": "samplers take them: megengine.data.RandomSampler(dataset, indices=[...])",
        "random_split": "make two ArrayDatasets of slices of the arrays",
        "BatchSampler": _SAMPLERS,
        "RandomBatchSampler": _SAMPLERS,
    },
    "megengine.distributed": {
        **{
            name: f"it is megengine.distributed.functional.{ours}"
            for name, ours in {
                "all_reduce": "all_reduce_sum",
                "all_gather": "all_gather",
                "broadcast": "broadcast",
                "scatter": "scatter",
                "gather": "gather",
                "reduce": "reduce_sum",
                "send": "remote_send",
                "recv": "remote_recv",
                "all_to_all": "all_to_all",
                "reduce_scatter": "reduce_scatter_sum",
            }.items()
        },
        "DistributedDataParallel": "GradManager().attach(params, callbacks=make_allreduce_cb('mean')) averages",
        "barrier": "it is group_barrier",
        "destroy_process_group": "not needed: it ends with the process",
        "is_available": "it always is; is_distributed() says whether this process is one of several",
        "is_initialized": "it is is_distributed",
        "spawn": "it is launcher, a decorator",
    },
}

PACKAGES["megengine.optimizer.lr_scheduler"] = PACKAGES["megengine.optimizer"]

#: Keywords, and what they are called here.
KEYWORDS = {
    "dim": "axis", "dims": "axis", "axes": "axis", "keepdim": "keepdims", "keep_dims": "keepdims", "input": "inp",
    "tensors": "inps", "start_dim": "start_axis", "end_dim": "end_axis", "p": "drop_prob", "inplace": "",
    "min": "lower", "max": "upper", "largest": "descending", "learning_rate": "lr", "dtype": "low_prec_dtype",
    "norm_type": "ord",
}  # fmt: skip


#: Keywords that have no counterpart here, and what to do instead.
KEYWORD_WAYS = {
    "out": "NumPy's function was given a Tensor: that of megengine.functional has a gradient, x.numpy() has none.",
    "dtype": "x.astype(dtype) converts a tensor.",
    "device_type": "It holds for all devices; leave it out.",
    "device": "The default device is taken: megengine.set_default_device('gpu0') before.",
    "ignore_index": "reduction='none' gives the losses one by one: loss[label != index].mean().",
    "inplace": "Functions make new tensors; leave it out.",
    "retain_graph": "One recording has one backward pass: add the losses up, or record again.",
    "weight": "reduction='none' gives the losses one by one: (loss * weight[label]).mean().",
}


class Elsewhere:
    """In the place of an attribute that another framework has: reading it tells our way."""

    def __init__(self, name: str, way: str) -> None:
        self.name = name
        self.way = way

    def __get__(self, obj: Any, owner: type) -> Any:
        for base in owner.__mro__:  # a class that comes later may have it: list, in class Layers(Module, list)
            found = vars(base).get(self.name, self)
            if not isinstance(found, Elsewhere):
                return found.__get__(obj, owner) if hasattr(found, "__get__") else found
        raise AttributeError(f"'{owner.__name__}' object has no attribute '{self.name}'; {self.way}.")


class NotSet(Elsewhere):
    """One that is not assigned either: the value would go nowhere."""

    def __set__(self, obj: Any, value: Any) -> None:
        self.__get__(obj, type(obj))


def explain_attributes(cls: type, ways: dict[str, str], not_set: Sequence[str] = ()) -> None:
    """Let a class tell our way for names that it does not have."""
    for name, way in ways.items():
        setattr(cls, name, NotSet(name, way) if name in not_set else Elsewhere(name, way))

    def __dir__(self: Any) -> list[str]:  # completion shall not offer them
        return [n for n in object.__dir__(self) if n not in ways or hasattr(self, n)]

    cls.__dir__ = __dir__  # type: ignore[assignment]


def _stand_in(module: str, name: str, way: str) -> Callable[..., NoReturn]:
    def elsewhere(*args: Any, **kwargs: Any) -> NoReturn:
        raise AttributeError(f"module {module!r} has no attribute {name!r}; {way}.", name=name)

    return elsewhere


def explain_names(names: dict[str, Any]) -> None:
    """Puts functions that tell our way into a package, for those that only other frameworks have there.

    Names that some version of MegEngine had are left alone: programs ask ``hasattr`` for them.
    """
    module = names["__name__"]
    standing_in = {name: _stand_in(module, name, way) for name, way in PACKAGES[module].items() if name not in names}
    names.update(standing_in)
    names["__dir__"] = lambda: sorted(names.keys() - standing_in.keys())


def no_attribute(module: str, name: str) -> Exception:
    """What the ``__getattr__`` of a package raises for a name that it does not have."""
    way = PACKAGES.get(module, {}).get(name, "")
    text = f"module {module!r} has no attribute {name!r}{f'; {way}' if way else ''}."
    # Python makes an ImportError of its own, without our text, of an AttributeError.
    if way and _imports(sys._getframe(2)):
        return ImportError(text, name=module)
    return AttributeError(text, name=name)


def _imports(frame: FrameType) -> bool:
    """Whether a frame is at ``from package import name``."""
    at = frame.f_lasti
    return at >= 0 and opcode.opname[frame.f_code.co_code[at]] == "IMPORT_FROM"


def check_keywords(who: str, given: dict[str, Any], function: Any) -> None:
    """Raises for keywords that ``function`` does not take, before Python does: it has no way out to tell."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    if unknown := {k: v for k, v in given.items() if k not in parameters}:
        raise unexpected(who, unknown, function)


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
        ways += [f" {near[0]}= is what {k}= seems to mean." for _ in near] or [f" {KEYWORD_WAYS.get(k, '')}".rstrip()]
    way = "".join(ways)
    return TypeError(
        f"{who}: got an unexpected keyword argument {', '.join(map(repr, given))}; it takes {', '.join(known)}.{way}"
    )
