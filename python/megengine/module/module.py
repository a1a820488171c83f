"""Module: a tree of parameters, buffers and submodules with a forward function."""

from __future__ import annotations

import warnings
from abc import ABCMeta, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Protocol, TypeVar, cast

import numpy as np

from ..core import _habits
from ..core._core import bump_mutation, note_use, set_module_scopes
from ..core._habits import unexpected
from ..core._warn import called_from_outside, warn_once
from ..logger import get_logger
from ..tensor import Parameter, Tensor
from ..utils.hook import HookHandler
from ..utils.naming import AutoNaming

__all__ = ["Module"]

logger = get_logger(__name__)
set_module_scopes(AutoNaming.scopes)  # where a recording finds who is running

_CONTAINERS = (list, tuple, dict)
_ARRAYS = (Tensor, np.ndarray)
_OURS = ("megengine", "builtins")  # errors that are made from a text


def _expand_structure(prefix: str, obj: Any) -> list[tuple[str, Any]]:
    """The tensors and modules in an attribute, with their keys; lists, tuples and dicts are looked into."""
    if isinstance(obj, (Tensor, Module)):
        return [(prefix, obj)]
    out: list[tuple[str, Any]] = []
    if isinstance(obj, (list, tuple)):
        for i, v in enumerate(obj):
            out.extend(_expand_structure(f"{prefix}.{i}" if prefix else str(i), v))
    elif isinstance(obj, dict):
        for key in sorted(obj, key=str):
            leaves = _expand_structure(f"{prefix}.{key}" if prefix else str(key), obj[key])
            if leaves and not isinstance(key, str):
                raise AssertionError(f"keys for Tensor and Module must be str, error key: {key}")
            out.extend(leaves)
    return out


def _shape_of(inputs: tuple[Any, ...]) -> tuple[int, ...] | None:
    """The shape of the first input, if it is a tensor."""
    return inputs[0]._tuple_shape if inputs and isinstance(inputs[0], Tensor) else None


def _is_module_obj(obj: Any) -> bool:
    """Whether an attribute is, or holds, a module."""
    if isinstance(obj, Module):
        return True
    if isinstance(obj, (list, tuple)):
        return any(_is_module_obj(v) for v in obj)
    if isinstance(obj, dict):
        return any(_is_module_obj(v) for v in obj.values())
    return False


def _access_structure(obj: Any, key: str, callback: Callable[[Any, Any, Any], Any]) -> Any:
    """``callback(parent, last part, object)`` for the object at a dotted path; in a list the last part is its index."""
    parent, current, part = None, obj, cast("str | int", "")
    for part in key.split("."):
        parent = current
        if isinstance(current, (list, tuple)):
            part = int(part)
            current = current[part]
        elif isinstance(current, dict):
            current = current[part]
        else:
            current = getattr(current, part)
    return callback(parent, part, current)


def _is_parameter(obj: Any) -> bool:
    return isinstance(obj, Parameter)


def _is_buffer(obj: Any) -> bool:
    return isinstance(obj, Tensor) and not isinstance(obj, Parameter)


def _is_tensor(obj: Any) -> bool:
    return isinstance(obj, Tensor)


def _is_module(obj: Any) -> bool:
    return isinstance(obj, Module)


def _anything(_: Any) -> bool:
    return True


_P = ParamSpec("_P")
_R = TypeVar("_R", covariant=True)


class _HasForward(Protocol[_P, _R]):
    """By which a type checker gives ``net(x)`` the arguments and the result of the ``forward`` that ``net`` has."""

    def forward(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...


class Module(metaclass=ABCMeta):
    """The base of layers and networks.

    A subclass calls ``super().__init__()``, assigns parameters and submodules to attributes, and defines ``forward``.
    Attributes are visited in alphabetical order.

    >>> class Net(M.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.fc = M.Linear(2, 3)
    ...
    ...     def forward(self, x):
    ...         return self.fc(x)
    >>> [k for k, _ in Net().named_parameters()]
    ['fc.bias', 'fc.weight']
    """

    def __init__(self, name: str | None = None, **other: NoReturn) -> None:
        if other:
            raise unexpected(type(self).__name__, other, type(self))
        self._modules: list[str] = []
        if name is not None:
            assert isinstance(name, str) and name.strip(), (
                f"Module: a name must be a string that is not blank; got {name!r}."
            )
        self.name = name
        self.training = True
        self.quantize_disabled = False
        self._forward_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
        self._forward_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
        # The full dotted name and the attribute name, given by the module that holds this one.
        self._name: str | None = None
        self._short_name: str | None = None

    @abstractmethod
    def forward(self, *inputs: Any, **kwargs: Any) -> Any:  # so: an override may take what it likes
        """The computation; called through the module itself."""

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> HookHandler:
        """Call ``hook(module, inputs)`` before forward; what it returns, unless None, replaces the inputs.

        >>> m = M.ReLU()
        >>> handle = m.register_forward_pre_hook(lambda mod, inputs: -inputs[0])
        >>> m(mge.tensor([-2.0])).item()
        2.0
        >>> handle.remove()
        """
        return HookHandler(self._forward_pre_hooks, hook)

    def register_forward_hook(self, hook: Callable[..., Any]) -> HookHandler:
        """Call ``hook(module, inputs, outputs)`` after forward; what it returns, unless None, replaces the outputs.

        >>> m = M.ReLU()
        >>> handle = m.register_forward_hook(lambda mod, inputs, outputs: outputs + 1)
        >>> m(mge.tensor([2.0])).item()
        3.0
        >>> handle.remove()
        """
        return HookHandler(self._forward_hooks, hook)

    def _trace_state(self) -> dict[str, Any]:
        """What a recording of this module depends on besides the values of its tensors."""
        return self.__dict__

    _trace_watched = (_trace_state, None)  # by all of them, as python/bindings/watch.cpp reads it

    def _misfit(self, inputs: tuple[Any, ...], error: Exception) -> str | None:
        """What does not fit between these inputs and the layer's arguments, asked when forward has failed."""
        return None

    def _call(self, *inputs: Any, **kwargs: Any) -> Any:
        note_use(self)
        try:
            scope = self.name if self.name is not None else self._short_name
        except AttributeError:
            raise AttributeError(
                f"{type(self).__name__}: Module.__init__ was not called. Begin {type(self).__name__}.__init__ with "
                "super().__init__()."
            ) from None
        if scope is not None:
            AutoNaming.scopes.append(scope)
        try:
            if self._forward_pre_hooks:
                for hook in tuple(self._forward_pre_hooks.values()):
                    changed = hook(self, inputs)
                    if changed is not None:
                        inputs = changed if isinstance(changed, tuple) else (changed,)
            outputs = self.forward(*inputs, **kwargs)
            if self._forward_hooks:
                for hook in tuple(self._forward_hooks.values()):
                    changed = hook(self, inputs, outputs)
                    if changed is not None:
                        outputs = changed
            return outputs
        except (ValueError, IndexError, AssertionError) as e:
            kind = type(e)
            said = self._misfit(inputs, e) if kind.__module__.partition(".")[0] in _OURS else None
            if said is None:
                raise
            name = f" {self._name!r}" if self._name else ""
            raise kind(f"{type(self).__name__}{name}: {said}") from e
        except (AttributeError, TypeError) as e:
            if type(self).__module__.startswith("megengine.") and inputs and not isinstance(inputs[0], _ARRAYS):
                what = (
                    "None; does forward of the layer before it return its result?"
                    if inputs[0] is None
                    else (f"a {type(inputs[0]).__name__}. Tensor(x) makes one.")
                )
                raise TypeError(f"{type(self).__name__}: the input must be a Tensor; got {what}") from e
            raise
        finally:
            if scope is not None:
                AutoNaming.scopes.pop()

    if TYPE_CHECKING:

        def __call__(self: _HasForward[_P, _R], *inputs: _P.args, **kwargs: _P.kwargs) -> _R: ...

    else:
        __call__ = _call

    # ---- visiting

    def _flatten(
        self,
        *,
        recursive: bool = True,
        with_key: bool = False,
        with_parent: bool = False,
        prefix: str | None = None,
        predicate: Callable[[Any], bool] = _anything,
        seen: set[int] | None = None,
    ) -> Iterator[Any]:
        """Tensors and modules below this one that satisfy ``predicate``, each once, by attribute name."""
        if seen is None:
            seen = {id(self)}
        for attr, value in sorted(vars(self).items()):
            if not isinstance(value, (Tensor, Module, *_CONTAINERS)):
                continue
            for key, leaf in _expand_structure(attr, value):
                if id(leaf) in seen:
                    continue
                seen.add(id(leaf))
                full = key if not prefix else f"{prefix}.{key}"
                if predicate(leaf):
                    item: list[Any] = [full] if with_key else []
                    item.append(leaf)
                    if with_parent:
                        item.append(self)
                    yield tuple(item) if len(item) > 1 else leaf
                if recursive and isinstance(leaf, Module):
                    yield from leaf._flatten(
                        recursive=True,
                        with_key=with_key,
                        with_parent=with_parent,
                        prefix=full,
                        predicate=predicate,
                        seen=seen,
                    )

    @staticmethod
    def _ignore_requires_grad(kwargs: dict[str, Any]) -> None:
        if "requires_grad" in kwargs:
            del kwargs["requires_grad"]
            logger.warning("requires_grad has no effect; attach tensors to a GradManager to get their gradients")

    def parameters(self, recursive: bool = True, **kwargs: Any) -> Iterator[Parameter]:
        """The parameters, of submodules too unless ``recursive`` is False.

        >>> [p.shape for p in M.Linear(2, 3).parameters()]
        [(3,), (3, 2)]
        """
        self._ignore_requires_grad(kwargs)
        yield from self._flatten(recursive=recursive, predicate=_is_parameter, **kwargs)

    def named_parameters(
        self, prefix: str | None = None, recursive: bool = True, **kwargs: Any
    ) -> Iterator[tuple[str, Parameter]]:
        """(dotted name, parameter) pairs.

        >>> [k for k, _ in M.Linear(2, 3).named_parameters("fc")]
        ['fc.bias', 'fc.weight']
        """
        self._ignore_requires_grad(kwargs)
        yield from self._flatten(with_key=True, prefix=prefix, recursive=recursive, predicate=_is_parameter, **kwargs)

    def buffers(self, recursive: bool = True, **kwargs: Any) -> Iterator[Tensor]:
        """The tensors that are not parameters.

        >>> [b.shape for b in M.BatchNorm2d(3).buffers()]
        [(1, 3, 1, 1), (1, 3, 1, 1)]
        """
        yield from self._flatten(recursive=recursive, predicate=_is_buffer, **kwargs)

    def named_buffers(
        self, prefix: str | None = None, recursive: bool = True, **kwargs: Any
    ) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, buffer) pairs.

        >>> [k for k, _ in M.BatchNorm2d(3).named_buffers()]
        ['running_mean', 'running_var']
        """
        yield from self._flatten(with_key=True, prefix=prefix, recursive=recursive, predicate=_is_buffer, **kwargs)

    def tensors(self, recursive: bool = True, **kwargs: Any) -> Iterator[Tensor]:
        """Parameters and buffers.

        >>> len(list(M.BatchNorm2d(3).tensors()))
        4
        """
        yield from self._flatten(recursive=recursive, predicate=_is_tensor, **kwargs)

    def named_tensors(
        self, prefix: str | None = None, recursive: bool = True, **kwargs: Any
    ) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, parameter or buffer) pairs.

        >>> [k for k, _ in M.BatchNorm2d(3).named_tensors()]
        ['bias', 'running_mean', 'running_var', 'weight']
        """
        yield from self._flatten(with_key=True, prefix=prefix, recursive=recursive, predicate=_is_tensor, **kwargs)

    def children(self, **kwargs: Any) -> Iterator[Module]:
        """The direct submodules, those in lists and dicts too.

        >>> [type(m).__name__ for m in M.Sequential(M.ReLU(), M.GELU()).children()]
        ['ReLU', 'GELU']
        """
        yield from self._flatten(recursive=False, predicate=_is_module, **kwargs)

    def named_children(self, **kwargs: Any) -> Iterator[tuple[str, Module]]:
        """(name, direct submodule) pairs.

        >>> [k for k, _ in M.Sequential(M.ReLU(), M.GELU()).named_children()]
        ['0', '1']
        """
        yield from self._flatten(with_key=True, recursive=False, predicate=_is_module, **kwargs)

    def modules(self, **kwargs: Any) -> Iterator[Any]:
        """This module and all below it.

        >>> [type(m).__name__ for m in M.Sequential(M.ReLU()).modules()]
        ['Sequential', 'ReLU']
        """
        if kwargs.get("with_parent"):
            yield self, None
        else:
            yield self
        yield from self._flatten(predicate=_is_module, **kwargs)

    def named_modules(self, prefix: str | None = None, **kwargs: Any) -> Iterator[Any]:
        """(dotted name, module) pairs; this module has the name ``prefix`` or an empty one.

        >>> [k for k, _ in M.Sequential(M.ReLU()).named_modules()]
        ['', '0']
        """
        own = "" if prefix is None else prefix
        if kwargs.get("with_parent"):
            yield own, self, None
        else:
            yield own, self
        yield from self._flatten(with_key=True, prefix=prefix, predicate=_is_module, **kwargs)

    def apply(self, fn: Callable[[Module], Any]) -> None:
        """Call ``fn`` on this module and all below it."""
        for m in self.modules():
            fn(m)

    # ---- modes

    def train(self, mode: bool = True, recursive: bool = True) -> None:
        """Training mode, or evaluation mode with ``mode=False``.

        >>> m = M.Sequential(M.Dropout(0.5))
        >>> m.train(False)
        >>> m[0].training
        False
        """
        if not recursive:
            self.training = mode
            return
        for m in self.modules():
            m.train(mode, recursive=False)

    def eval(self) -> None:
        """Evaluation mode."""
        self.train(False)

    def disable_quantize(self, value: bool = True) -> None:
        """Leave this module and all below it out of quantisation."""
        for m in self.modules():
            m.quantize_disabled = value

    def zero_grad(self) -> None:
        """Deprecated: set gradients to zero; use ``Optimizer.clear_grad``."""
        warnings.warn("Module.zero_grad is deprecated; use Optimizer.clear_grad", DeprecationWarning, stacklevel=2)
        for p in self.parameters():
            if p.grad is not None:
                p.grad._reset(p.grad * 0)

    def replace_param(self, params: dict[int, Parameter], start_pos: int, seen: set[int] | None = None) -> int:
        """Deprecated: replace parameters by those numbered from ``start_pos`` in ``params``; returns how many."""
        warnings.warn("Module.replace_param is deprecated; use load_state_dict", DeprecationWarning, stacklevel=2)
        assert isinstance(params, dict), f"replace_param: params must be a dict; got {type(params).__name__}."
        return self._replace_param(params, start_pos, {id(self)} if seen is None else set(seen))

    def _replace_param(self, params: dict[int, Parameter], start_pos: int, seen: set[int]) -> int:
        count = 0
        for key in sorted(vars(self)):
            value = vars(self)[key]
            if id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, Parameter):
                new = params.get(start_pos + count)
                if new is not None:
                    assert new.shape == value.shape, f"replace_param: {key} has shape {value.shape}, not {new.shape}."
                    setattr(self, key, new)
                count += 1
            elif isinstance(value, Module):
                count += value._replace_param(params, start_pos + count, seen)
        return count

    # ---- state

    def _flat_state(self) -> bool:
        """Whether the state holds vectors whatever shape the tensors have: normalisation layers."""
        return False

    def state_dict(self, rst: Any = None, prefix: str = "", keep_var: bool = False) -> Any:
        """All parameters and buffers by dotted name, as arrays, or as tensors with ``keep_var``.

        >>> {k: v.shape for k, v in M.Linear(2, 3).state_dict().items()}
        {'bias': (3,), 'weight': (3, 2)}
        """
        return self._state_dict(rst, prefix, keep_var)

    def _state_dict(self, rst: Any = None, prefix: str = "", keep_var: bool = False) -> Any:
        if rst is None:
            rst = OrderedDict()
        # Not by way of the children's state_dict, which a subclass may give another meaning or other arguments.
        flat = self._flat_state()
        for key, tensor in self._flatten(recursive=False, with_key=True, predicate=_is_tensor):
            value = tensor if keep_var else tensor.numpy()
            rst[prefix + key] = value.reshape(-1) if flat else value
        for key, child in self._flatten(recursive=False, with_key=True, predicate=_is_module):
            child._state_dict(rst, f"{prefix}{key}.", keep_var)
        return rst

    def load_state_dict(self, state_dict: dict[str, Any] | Callable[[str, Tensor], Any], strict: bool = True) -> None:
        """Take the values of parameters and buffers from a dict of arrays.

        Args:
            state_dict: arrays by dotted name; or a function from name and tensor to an array, or to None to skip it.
            strict: a name too many or too few is an error, not only a warning.

        >>> a, b = M.Linear(2, 3), M.Linear(2, 3)
        >>> b.load_state_dict(a.state_dict())
        >>> np.array_equal(a.weight.numpy(), b.weight.numpy())
        True
        """
        unused: set[str] = set()
        if callable(state_dict):
            closure = state_dict
        elif not isinstance(state_dict, dict):
            raise ValueError(
                f"load_state_dict: `state_dict` must load a dict or callable, got {type(state_dict)}. "
                "megengine.load(path) reads one from a file."
            )
        else:
            self._refuse_whole_checkpoint(state_dict)
            unused = set(state_dict)
            given = state_dict

            def closure(key: str, _: Tensor) -> Any:
                unused.discard(key)
                return given.get(key)

        loaded: list[tuple[Tensor, np.ndarray]] = []
        missing = self._collect(closure, "", loaded)
        if unused:
            if strict:
                raise KeyError(self._refused("Unused", sorted(unused), missing))
            logger.warning(f"Unused params in `load_state_dict`, unused={sorted(unused)}")
        if missing:
            if strict:
                raise KeyError(self._refused("Missing", missing, missing))
            logger.warning(f"Missing params in `load_state_dict`, missing={missing}")
        # Everything was checked: either all of it is taken or, with an exception above, nothing.
        for var, value in loaded:
            var._reset(type(var)(value, value.dtype, var.device, no_cache=True))

    def _load_state_dict_with_closure(self, closure: Callable[[str, Tensor], Any]) -> tuple[set[str], set[str]]:
        """Take what the function of name and tensor gives; the names that were loaded, and those it had None for."""
        loaded: list[tuple[Tensor, np.ndarray]] = []
        names = []

        def told(key: str, var: Tensor) -> Any:
            names.append(key)
            return closure(key, var)

        skipped = set(self._collect(told, "", loaded))
        for var, value in loaded:
            var._reset(type(var)(value, value.dtype, var.device, no_cache=True))
        return set(names) - skipped, skipped

    def _refuse_whole_checkpoint(self, state: dict[str, Any]) -> None:
        """Raises where the state is an entry of ``state``; with ``strict=False`` it would be silently left out."""
        entries = {key: value for key, value in state.items() if isinstance(value, dict)}
        if not entries:
            return
        names = set(self._state_dict(keep_var=True))
        if names.isdisjoint(state):
            for key, value in entries.items():
                if not names.isdisjoint(value):
                    raise KeyError(
                        f"load_state_dict: got a whole checkpoint with the entries {_listed(state)}; the state of "
                        f"this {type(self).__name__} is its entry {key!r}. Pass checkpoint[{key!r}]."
                    )

    def _refused(self, kind: str, names: list[str], missing: list[str]) -> str:
        """Why a state does not fit, with a guess: names that differ by a prefix come from another wrapping."""
        way = "strict=False takes what fits."
        if kind == "Unused" and missing and all(any(n.endswith("." + m) for m in missing) for n in names):
            prefix = names[0][: len(names[0]) - len(max((m for m in missing if names[0].endswith("." + m)), key=len))]
            way = f"They have the prefix {prefix!r} before names of this module: cut it off. " + way
        return (
            f"load_state_dict of {type(self).__name__}: {kind} params violate `strict=True`, {kind.lower()}={names}. "
            f"{way}"
        )

    def _collect(
        self, closure: Callable[[str, Tensor], Any], prefix: str, loaded: list[tuple[Tensor, np.ndarray]]
    ) -> list[str]:
        """Adds what the closure gives, in the shape of the tensor, to ``loaded``; the names it had nothing for."""
        missing: list[str] = []
        for key, var in self._flatten(recursive=False, with_key=True, predicate=_is_tensor):
            name = prefix + key
            value = closure(name, var)
            if value is None:
                missing.append(name)
                continue
            assert isinstance(value, np.ndarray), (
                f"load_state_dict: {name} must be an ndarray; got {type(value).__name__}. x.numpy() gives one."
            )
            if self._flat_state():
                if value.size != var.size:
                    raise ValueError(
                        f"load_state_dict: param `{name}` size mismatch, should be {var.size}, get {value.size}; it "
                        f"belongs to {self!r}."
                    )
                value = value.reshape(var.shape)
            elif value.shape != var.shape:
                raise ValueError(
                    f"load_state_dict: param `{name}` shape mismatch, should be {var.shape}, get {value.shape}; it "
                    f"belongs to {self!r}."
                )
            loaded.append((var, value))
        for key, child in self._flatten(recursive=False, with_key=True, predicate=_is_module):
            missing.extend(child._collect(closure, f"{prefix}{key}.", loaded))
        return missing

    # ---- attributes and names

    def __setattr__(self, name: str, value: Any) -> None:
        bump_mutation()
        kind = type(value)
        if kind in (bool, int, float, str, type(None)):
            # Nothing to name and nothing to show; a module that comes here later is shown after the others.
            modules = self.__dict__.get("_modules")
            if modules and name in modules:
                modules.remove(name)
            object.__setattr__(self, name, value)
            return
        if kind in (Tensor, np.ndarray) and isinstance(self.__dict__.get(name), Parameter) and called_from_outside():
            who = f"{type(self).__name__}.{name}"
            lost = "no optimizer trains" if kind is Tensor else "is neither trained nor saved"
            warn_once(
                who,
                f"{who} was a Parameter and is a {kind.__name__} now, which {lost}. {name}[...] = value sets its "
                "value; Parameter(value) is another one.",
            )
        # First, so that a value which cannot be a part of a module leaves the module as it was.
        leaves = _expand_structure(name, value) if isinstance(value, (Tensor, Module, *_CONTAINERS)) else ()
        if isinstance(value, (Module, *_CONTAINERS)) and name != "_modules":
            modules = self.__dict__.get("_modules")
            if modules is None:
                raise AttributeError(
                    f"{type(self).__name__}.{name}: cannot assign module before Module.__init__() call. Begin "
                    "__init__ with super().__init__()."
                )
            if name not in modules:  # an empty container too: modules may be put into it later
                modules.append(name)
        object.__setattr__(self, name, value)
        if leaves:
            prefix = self.__dict__.get("_name") or self.__dict__.get("name")
            for key, leaf in leaves:
                _set_names(prefix, key, leaf)

    def __delattr__(self, name: str) -> None:
        bump_mutation()
        modules = self.__dict__.get("_modules")
        if modules and name in modules:
            modules.remove(name)
        object.__delattr__(self, name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_short_name" not in state:  # files written before the full name was kept
            state = dict(state)
            state["_short_name"] = state.get("_name")
            state["_name"] = None
        self.__dict__.update(state)

    # ---- text

    def _module_info_string(self) -> str:
        """What ``repr`` shows of the module itself."""
        return ""

    def __repr__(self) -> str:
        lines: list[str] = []
        info = self._module_info_string()
        if info:
            lines.extend(info.split("\n"))
        for name in self._modules:
            value = self.__dict__.get(name)
            if not _is_module_obj(value):
                continue
            for key, child in _expand_structure(name, value):
                if isinstance(child, Module):
                    lines.append(f"({key}): " + repr(child).replace("\n", "\n  "))
        head = f"{self._repr_prefix()}{type(self).__name__}("
        if not lines:
            return head + ")"
        if len(lines) == 1 and info:
            return head + info + ")"
        return head + "\n  " + "\n  ".join(lines) + "\n)"

    def _repr_prefix(self) -> str:
        return ""


_habits.explain_attributes(Module, _habits.MODULE)


def _listed(names: Iterable[Any], most: int = 6) -> str:
    """A few names for a message."""
    texts = [repr(n) for n in names]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def _expand_named(name: str, value: Any) -> Iterable[tuple[str, Any]]:
    """Leaves of an attribute for naming; a container that was filled later with what has no name is left to whoever
    flattens it."""
    try:
        return _expand_structure(name, value)
    except AssertionError:
        return ()


def _set_names(prefix: str | None, key: str, leaf: Any) -> None:
    attributes = leaf.__dict__
    if isinstance(leaf, Tensor):
        short = leaf.name or key
        _warn_renamed(attributes, short)
        if attributes.get("_short_name") not in (None, short):
            return
        attributes["_prefix"] = prefix
        attributes["_short_name"] = short
        attributes["_name"] = f"{prefix}.{short}" if prefix else short
        return
    # The attribute's name even if the module has one of its own, which names its ops, not its parameters.
    _warn_renamed(attributes, key)
    if attributes.get("_short_name") not in (None, key):
        return
    attributes["_short_name"] = key
    attributes["_name"] = full = f"{prefix}.{key}" if prefix else key
    for attr, value in list(attributes.items()):
        if isinstance(value, (Tensor, Module, *_CONTAINERS)):
            for inner_key, inner in _expand_named(attr, value):
                if inner is leaf:
                    continue
                if inner.__dict__.get("_short_name") is not None:
                    inner.__dict__["_name"] = f"{full}.{inner.__dict__['_short_name']}"
                    if isinstance(inner, Tensor):
                        inner.__dict__["_prefix"] = full
                    else:
                        _push_names(inner, {id(leaf)})
                else:
                    _set_names(full, inner_key, inner)


def _push_names(module: Module, seen: set[int]) -> None:
    """Renew the full names below a module whose own changed; ``seen`` ends the walk where a child knows its parent."""
    seen.add(id(module))
    full = module._name
    for attr, value in list(module.__dict__.items()):
        if isinstance(value, (Tensor, Module, *_CONTAINERS)):
            for key, leaf in _expand_named(attr, value):
                if id(leaf) in seen:
                    continue
                short = leaf.__dict__.get("_short_name") or key
                leaf.__dict__["_name"] = f"{full}.{short}" if full else short
                if isinstance(leaf, Tensor):
                    leaf.__dict__["_prefix"] = full
                else:
                    _push_names(leaf, seen)


def _warn_renamed(attributes: dict[str, Any], short: str) -> None:
    old = attributes.get("_short_name")
    if old is not None and old != short:
        logger.warning(f"object already named {old!r}; keeping that name instead of {short!r}")
