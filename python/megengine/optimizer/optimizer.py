"""The base of optimizers."""

from __future__ import annotations

import math
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import _core
from ..core._core import ops
from ..core._habits import check_keywords
from ..core._warn import warn_once
from ..core.tensor.utils import ArgumentError
from ..jit.conditional import Conditional, at
from ..tensor import Parameter, Tensor

__all__ = ["Optimizer", "required"]


class _RequiredParameter:
    def __repr__(self) -> str:
        return "<required parameter>"


# Attributes of the base: tensors, and what they were filled from.
_OWN = frozenset(
    "_state _defaults param_groups _lr_cells _own_lr_cells _lr_values _hyper_cells _hyper_values _parts "
    "_unattached_told".split()
)

#: Stands for a hyper-parameter that has no default.
required = _RequiredParameter()


class Optimizer(metaclass=ABCMeta):
    """Updates parameters from their gradients.

    Args:
        params: parameters, or dicts ``{"params": [...], ...}`` with hyper-parameters of their own.
        defaults: hyper-parameters of groups that do not set them.

    The numbers of a group reach the update ops as tensors that live as long as the optimizer, so a traced step follows
    ``group["lr"]``, ``group["momentum"]`` and the like. What changes the ops themselves (other parameters, nesterov on
    or off, ``lr`` set to a Tensor) makes a traced call record anew.
    """

    #: The numbers besides ``lr``, in the order the update op takes them.
    _numbers: tuple[str, ...] = ()
    _trace_volatile = True  # groups are plain dicts: a trace looks at them on every call
    _unattached_told = False  # whether parameters that cannot get a gradient were looked for

    if not TYPE_CHECKING:

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            check_keywords(cls.__name__, kwargs, cls.__init__)
            return super().__new__(cls)

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self._state: dict[Parameter, dict[str, Tensor]] = {}
        self._defaults = defaults
        self.param_groups: list[dict[str, Any]] = []
        # By id of the group: the tensors that hold lr and the other numbers, and what they were filled from. A tensor
        # of our own is never replaced by another one: recordings have captured it.
        self._lr_cells: dict[int, Tensor] = {}
        self._own_lr_cells: dict[int, Tensor] = {}
        self._lr_values: dict[int, Any] = {}
        self._hyper_cells: dict[int, Tensor] = {}
        self._hyper_values: dict[int, tuple[float, ...]] = {}
        self._parts: dict[int, list[list[Parameter]]] = {}  # by id of the group: its parameters by device
        who = type(self).__name__
        if isinstance(params, (Parameter, dict)):
            params = [params]
        elif not isinstance(params, Iterable):
            way = " Pass net.parameters()." if hasattr(params, "parameters") or callable(params) else ""
            raise TypeError(
                f"{who}: params must be a Parameter, a dict or an iterable of them; got {type(params).__name__}.{way}"
            )
        groups = list(params)
        if not groups:
            way = ""
            if isinstance(params, Iterator):
                way = " net.parameters() can be read once; call it again, or keep list(net.parameters())."
            raise ValueError(f"{who}: there are no parameters to optimize; optimizer got an empty parameter list.{way}")
        kind = type(groups[0])
        if any(not isinstance(g, dict if issubclass(kind, dict) else Parameter) for g in groups):
            names = sorted({type(g).__name__ for g in groups})
            way = " named_parameters() gives names too; pass net.parameters()." if "tuple" in names else ""
            raise TypeError(f"{who}: params must all be Parameters or all be dicts; got {', '.join(names)}.{way}")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Also optimize these parameters.

        Args:
            param_group: ``{"params": [...]}`` with hyper-parameters; what is missing comes from the defaults.
        """
        who = type(self).__name__
        assert isinstance(param_group, dict), f"{who}: param group must be a dict; got {type(param_group).__name__}"
        if "params" not in param_group:
            raise ValueError(f"{who}: a parameter group needs 'params'; got {', '.join(map(repr, param_group))}.")
        given = param_group["params"]
        params = [given] if isinstance(given, Parameter) else given
        if isinstance(params, set):
            raise TypeError(f"{who}: parameters need an order, which a set does not have; use a list")
        params = list(params)
        for p in params:
            if not isinstance(p, Parameter):
                raise TypeError(f"{who}: optimizer can only optimize Parameters; got {type(p).__name__}")
        param_group["params"] = params
        for name, default in self._defaults.items():
            if default is required and name not in param_group:
                raise ValueError(
                    f"{who}: parameter group did not specify a value of required optimizer parameter {name}"
                )
            param_group.setdefault(name, default)
        before = {id(p) for g in self.param_groups for p in g["params"]}
        seen: set[int] = set()
        for p in params:
            if id(p) in seen or id(p) in before:
                where = "twice in one parameter group" if id(p) in seen else "in more than one parameter group"
                raise ArgumentError(f"{who}: some parameters appear {where}: {_label(p)}.")
            seen.add(id(p))
        for p in params:
            p._reset(ops.copy(p.detach()))  # a value of its own, even if it was made from another parameter
        self.param_groups.append(param_group)
        self._create_state(param_group)
        self._sync_hyper()
        self._unattached_told = False

    def _add_state(self, param: Parameter, state_name: str, initializer: Any = None) -> None:
        """Give a parameter a state tensor: zeros in its shape unless given."""
        if initializer is None:
            value = Tensor(np.zeros(param.shape, dtype=np.float32), param.dtype, param.device)
            value.format = param.format
        else:
            value = Tensor(initializer, device=param.device)
        self._state.setdefault(param, {})[state_name] = value

    @abstractmethod
    def _create_state(self, param_group: dict[str, Any]) -> None: ...

    @abstractmethod
    def _updates(self, param_group: dict[str, Any]) -> None: ...

    def _sync_hyper(self) -> None:
        """Bring the tensors that hold numbers up to date; a trace calls this before each replay."""
        values = self._lr_values
        for group in self.param_groups:
            lr = group.get("lr")
            key = id(group)
            if lr is not values.get(key) or key not in self._lr_cells:
                if isinstance(lr, Tensor):
                    self._lr_cells[key] = lr
                elif lr is not None:
                    cell = self._filled(self._own_lr_cells.get(key), float(lr), "float32", group)
                    self._lr_cells[key] = self._own_lr_cells[key] = cell
                values[key] = lr
            if self._numbers:
                numbers = self._read_numbers(group)
                if numbers != self._hyper_values.get(key):
                    self._check_numbers(numbers)
                    self._hyper_cells[key] = self._filled(self._hyper_cells.get(key), numbers, "float64", group)
                    self._hyper_values[key] = numbers

    def _filled(self, cell: Tensor | None, value: Any, dtype: str, group: dict[str, Any]) -> Tensor:
        """The cell with another value, or a new one. A trace captures it; it computes nothing."""
        token = _core.pause_trace()
        try:
            new = Tensor(value, dtype, next((p.device for p in group["params"]), None))
            if cell is None:
                return new
            cell._reset(new)
            return cell
        finally:
            _core.resume_trace(token)

    def _read_numbers(self, group: dict[str, Any]) -> tuple[float, ...]:
        """The numbers besides lr, in the order of the op."""
        return tuple([float(group[name]) for name in self._numbers])

    def _check_numbers(self, numbers: tuple[float, ...]) -> None:
        """Raises when a number that was changed is out of range."""
        for name, value in zip(self._numbers[-len(numbers) :], numbers):
            if not value >= 0.0:
                raise ValueError(f"{type(self).__name__}: {name} must not be negative; got {value}.")

    def _structure(self, group: dict[str, Any]) -> Any:
        """What of the group decides which ops a step is made of."""
        return None

    def _trace_state(self) -> list[Any]:
        """What a recorded step depends on besides values that tensors hold."""
        state: list[Any] = []
        for group in self.param_groups:
            lr = group.get("lr")
            state.append((id(group), *group["params"], lr if isinstance(lr, Tensor) else None, self._structure(group)))
        if type(self).__module__.partition(".optimizer")[0] != __name__.partition(".optimizer")[0]:
            # A rule of somebody else's reads its groups and attributes as it likes.
            state += [{k: v for k, v in group.items() if k != "params"} for group in self.param_groups]
            state.append({k: v for k, v in vars(self).items() if k not in _OWN})
        return state

    # Which attributes there are, and what the groups hold; python/bindings/watch.cpp.
    _trace_watched = (_trace_state, ("param_groups",))

    def _lr(self, param_group: dict[str, Any]) -> Tensor:
        """The learning rate of a group as a 0-d tensor."""
        return self._lr_cells[id(param_group)]

    def _hyper(self, param_group: dict[str, Any]) -> Tensor:
        """The other numbers of a group as a tensor, in the order of ``_numbers``."""
        return self._hyper_cells[id(param_group)]

    @staticmethod
    def _fused(p: Parameter, op: Any, state: tuple[Tensor, ...], scalars: tuple[Any, ...], **attrs: Any) -> None:
        """One op for one parameter: in place of it and of its float32 state, which 16-bit parameters go through."""
        g, skip = _grad_of(p)
        if p.dtype == np.float32 and g.dtype == np.float32:
            op.update((p, *state), p, g, *state, *scalars, skip, **attrs)
            return
        new = op(p.astype("float32"), g.astype("float32"), *state, *scalars, skip, **attrs)
        for cell, value in zip((p, *state), new):
            cell._reset(value.detach().astype(cell.dtype))

    def step(self) -> Optimizer:
        """Update every parameter that has a gradient; returns the optimizer.

        >>> from megengine.optimizer import SGD
        >>> p = mge.Parameter([1.0])
        >>> p.grad = mge.tensor([2.0])
        >>> _ = SGD(p, lr=0.25).step()
        >>> p
        Parameter([0.5], device=xpux:0)
        """
        self._sync_hyper()
        if _core.takes_notes():
            from ..jit.tracing import on_replay

            _core.note_use(self)
            on_replay(self._sync_hyper, self.param_groups)
        for group in self.param_groups:
            if isinstance(group["params"], set):
                raise TypeError("parameters need an order, which a set does not have; use a list")
            parts = self._by_device(group)
            if len(parts) == 1:
                try:
                    self._updates(group)
                except _core.UserError as e:
                    self._explain(group, e)
                    raise
                continue
            for params in parts:
                part = {**group, "params": params}
                for cells in (self._lr_cells, self._hyper_cells):
                    if id(group) in cells:
                        cells[id(part)] = at(cells[id(group)], params[0].device)
                self._updates(part)
                for cells in (self._lr_cells, self._hyper_cells):
                    cells.pop(id(part), None)
        first = self.param_groups[0]["params"] if self.param_groups else ()
        if not (self._unattached_told and first and first[0].grad is not None):
            self._look_for_gradients()
        return self

    def _look_for_gradients(self) -> None:
        """One warning when there are none, and one for parameters that can get none."""
        if self._unattached_told:
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:  # nearly always the first
                        return
        params = [p for group in self.param_groups for p in group["params"]]
        without = [p for p in params if p.grad is None]
        who = type(self).__name__
        if len(without) == len(params):
            if params and not any(p._grad_dropped for p in params):
                warn_once(
                    "step",
                    f"{who}.step: none of the {len(params)} parameters has a gradient, so nothing changes. Call "
                    "gm.backward(loss) in `with gm:` before step, and clear_grad after it.",
                )
            return
        self._unattached_told = True
        lost = [p for p in without if not p._attached]
        if lost:
            some = ", ".join(map(_label, lost[:3])) + (", ..." if len(lost) > 3 else "")
            warn_once(
                "step",
                f"{who}.step: {len(lost)} of {len(params)} parameters have no gradient and were never attached to a "
                f"GradManager: {some}. They stay as they are; gm.attach(net.parameters()) attaches all.",
            )

    def _explain(self, group: dict[str, Any], error: Exception) -> None:
        """Raises in the user's words when a gradient does not fit its parameter."""
        for p in group["params"]:
            g = p.grad
            if g is not None and not isinstance(g, (Tensor, Conditional)):
                raise _core.DTypeError(
                    f"{type(self).__name__}.step: grad of {_label(p)} must be a Tensor; got a {type(g).__name__}."
                ) from error
            if type(g) is Tensor and g.shape != p.shape:
                raise _core.UserError(
                    f"{type(self).__name__}.step: grad of {_label(p)} has shape {g.shape}, the parameter {p.shape}."
                ) from error

    def _by_device(self, group: dict[str, Any]) -> list[list[Parameter]]:
        """The parameters of a group, a list for each device; looked up anew when the group grows."""
        known = self._parts.get(id(group))
        if known is None or sum(map(len, known)) != len(group["params"]):
            found: dict[str, list[Parameter]] = {}
            for p in group["params"]:
                found.setdefault(p.device.physical_name, []).append(p)
            known = self._parts[id(group)] = list(found.values())
        return known

    def clear_grad(self) -> None:
        """Forget all gradients.

        >>> from megengine.optimizer import SGD
        >>> p = mge.Parameter([1.0])
        >>> p.grad = mge.tensor([2.0])
        >>> SGD(p, lr=0.1).clear_grad()
        >>> p.grad is None
        True
        """
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    def zero_grad(self) -> None:
        """Deprecated: set gradients to zero; use ``clear_grad``."""
        warnings.warn("Optimizer.zero_grad is deprecated; use clear_grad", DeprecationWarning, stacklevel=2)
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    g, _ = _grad_of(p)
                    g._reset(ops.fill_like(g, value=0.0))

    def backward(self, loss: Any) -> None:
        """Not here: gradients come from ``autodiff.GradManager.backward``."""
        raise NotImplementedError("use autodiff.GradManager.backward instead of Optimizer.backward")

    def bcast_param(self) -> None:
        """Not here: use ``distributed.bcast_list_``."""
        raise NotImplementedError("use distributed.bcast_list_ instead of Optimizer.bcast_param")

    # ---- state

    def state_dict(self, keep_var: bool = False) -> dict[str, Any]:
        """Hyper-parameters and state; parameters are numbered in group order.

        >>> from megengine.optimizer import SGD
        >>> SGD(mge.Parameter([1.0]), lr=0.1).state_dict()
        {'param_groups': [{'lr': 0.1, 'momentum': 0.0, 'weight_decay': 0.0, 'params': [0]}], 'state': {}}
        """
        groups, state = [], {}
        count = 0
        for group in self.param_groups:
            saved = {k: v for k, v in group.items() if k != "params"}
            saved["params"] = []
            for p in group["params"]:
                saved["params"].append(count)
                if p in self._state:
                    state[count] = {k: v if keep_var else v.numpy() for k, v in self._state[p].items()}
                count += 1
            groups.append(saved)
        return {"param_groups": groups, "state": state}

    def _checked_state(self, number: Any, param: Parameter | None, values: dict[str, Any]) -> dict[str, np.ndarray]:
        """The arrays of one parameter in the shapes of this optimizer's state."""
        name = type(self).__name__
        if param is None:
            raise ValueError(f"load_state_dict: {name} has state of parameter {number!r}, which is in no group.")
        mine = self._state.get(param, {})
        if not set(values) >= set(mine):  # a rule of somebody else's may add to its state later on
            raise ValueError(
                f"load_state_dict: parameter {number} has the state {', '.join(sorted(values)) or 'nothing'}; {name} "
                f"keeps {', '.join(sorted(mine))}. The state is that of another kind of optimizer."
            )
        arrays = {}
        for key, value in values.items():
            array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
            want = mine[key].shape if key in mine else array.shape
            if array.shape != want and not array.size == math.prod(want) == 1:
                raise ValueError(
                    f"load_state_dict: {key} of parameter {number} has shape {array.shape}, the parameter needs {want}."
                    " The state is that of another network, or its parameters come in another order."
                )
            arrays[key] = array.reshape(want)
        return arrays

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over hyper-parameters and state from ``state_dict`` of an optimizer with the same groups.

        All of it is checked first: what does not fit is an error and changes nothing.
        """
        _check_whole(type(self).__name__, state)
        who = f"load_state_dict of {type(self).__name__}"
        groups = state["param_groups"]
        if len(groups) != len(self.param_groups):
            raise ValueError(
                f"{who}: loaded state dict has {len(groups)} parameter groups, this optimizer has "
                f"{len(self.param_groups)}"
            )
        by_number: dict[int, Parameter] = {}
        for i, (mine, saved) in enumerate(zip(self.param_groups, groups)):
            if len(mine["params"]) != len(saved["params"]):
                raise ValueError(
                    f"{who}: parameter group {i} has {len(saved['params'])} parameters in the state dict, "
                    f"{len(mine['params'])} in this optimizer"
                )
            if set(mine) != set(saved):
                raise ValueError(
                    f"{who}: parameter group {i} has other keys in the state dict ({', '.join(sorted(saved))}) "
                    f"than in this optimizer ({', '.join(sorted(mine))})"
                )
            by_number.update(zip(saved["params"], mine["params"]))
        saved_state = state["state"]
        if len(saved_state) < len(self._state):  # more than this one has yet: momentum that its groups now take over
            raise ValueError(
                f"the state dict holds state of {len(saved_state)} parameters, this optimizer of {len(self._state)}"
            )
        loaded = [
            (by_number[number], key, array)
            for number, values in saved_state.items()
            for key, array in self._checked_state(number, by_number.get(number), values).items()
        ]
        for mine, saved in zip(self.param_groups, groups):
            mine.update({key: value for key, value in saved.items() if key != "params"})
        for param, key, array in loaded:
            known = self._state.setdefault(param, {}).get(key)
            label = "default" if known is None else known.format
            value = Tensor(array, device=param.device, no_cache=True, format=label)
            if known is None:
                self._state[param][key] = value
            else:  # the same tensor: a step that was traced before keeps using it
                known._reset(value)
        self._sync_hyper()


def _check_whole(name: str, state: Any) -> None:
    """Raises where ``state`` is no state of an optimizer, but may hold one."""
    if not isinstance(state, dict):
        raise TypeError(f"load_state_dict of {name}: needs the dict of opt.state_dict(); got {type(state).__name__}.")
    missing = [key for key in ("param_groups", "state") if key not in state]
    if missing:
        entries = ", ".join(map(repr, list(state)[:6]))
        inner = [key for key, value in state.items() if isinstance(value, dict) and "param_groups" in value]
        way = f"Pass checkpoint[{inner[0]!r}]." if inner else "Pass what opt.state_dict() returned."
        raise KeyError(
            f"load_state_dict of {name}: no {missing[0]!r} among the entries {entries}; this is no state of an "
            f"optimizer. {way}"
        )


def _label(p: Parameter) -> str:
    """A parameter as the user knows it."""
    return f"{p.__dict__.get('_name') or p.name or 'a parameter'} {p._tuple_shape}"


def check_number(who: str, name: str, value: Any, low: float = 0.0, high: float = math.inf) -> None:
    """Raises unless a hyper-parameter is a number of the range; a Tensor may be anything."""
    if isinstance(value, Tensor):
        return
    if isinstance(value, str) or not hasattr(value, "__float__"):
        raise TypeError(f"{who}: {name} must be a number; got {value!r}.")
    if not low <= value <= high:
        bounds = f"at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
        raise ArgumentError(f"{who}: {name} must be {bounds}; got {value}.")


def _grad_of(p: Parameter) -> tuple[Tensor, Tensor | None]:
    """The gradient, and, where a traced program decides that, whether there is none."""
    g: Any = p.grad
    return (g.grad, at(g.absent, p.device)) if type(g) is Conditional else (g, None)


def _count(step: Tensor, skip: Tensor | None) -> None:
    """One more step, unless it is skipped."""
    step += 1.0 if skip is None else ops.where(skip, 0.0, 1.0)
