"""Recurrent networks: cells of one step, and layers that run over a sequence in one op."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core._core import UserError, ops
from ..functional import dropout, relu, sigmoid, split, tanh, zeros
from ..tensor import Parameter, Tensor
from . import init
from .module import Module

__all__ = ["LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]


#: One layer in one direction: W_ih, W_hh, b_ih, b_hh.
_Weights = tuple[Tensor, Tensor, "Tensor | None", "Tensor | None"]


def cut_weights(
    packed: Tensor, gates: int, inputs: Sequence[int], hidden_size: int, directions: int, bias: bool
) -> list[list[_Weights]]:
    """(W_ih, W_hh, b_ih, b_hh) by layer and direction from one tensor; ``inputs`` has the input width of each layer."""
    flat = packed.reshape(-1)
    at = 0

    def take(*shape: int) -> Tensor:
        nonlocal at
        n = math.prod(shape)
        at += n
        return flat[at - n : at].reshape(*shape)

    def one(width: int) -> _Weights:
        w_ih, w_hh = take(gates, width), take(gates, hidden_size)
        return w_ih, w_hh, take(gates) if bias else None, take(gates) if bias else None

    return [[one(width) for _ in range(directions)] for width in inputs]


def run_layers(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Sequence[_Weights]],
    mode: str,
    between: Callable[[Tensor], Tensor],
) -> tuple[Tensor, list[Tensor]]:
    """Run (L, N, in) through layers and directions; returns the outputs and the last states.

    ``mode`` is the kind of cell: tanh, relu or lstm. ``between`` is applied to what goes from one layer to the next.
    """
    last: list[list[Tensor]] = [[] for _ in states]
    row = 0
    for layer in weights:
        if row:
            x = between(x)
        outputs = []
        for direction, (w_ih, w_hh, b_ih, b_hh) in enumerate(layer):
            gates = _product(x, w_ih, None if b_ih is None or b_hh is None else b_ih + b_hh)
            backwards = direction == 1
            results = ops.recurrence(gates, w_hh, *(s[row] for s in states), mode=mode, reverse=backwards)
            row += 1
            for part, sequence in zip(last, results):
                part.append(sequence[0 if backwards else -1])
            outputs.append(results[0])
        x = ops.concat(*outputs, axis=2) if len(outputs) > 1 else outputs[0]
    return x, [_stacked(part) for part in last]


def _stacked(xs: Sequence[Tensor]) -> Tensor:
    return ops.concat(*(ops.expand_dims(x, axes=(0,)) for x in xs), axis=0)


def lstm_step(gates: Tensor, state: Sequence[Tensor]) -> list[Tensor]:
    """The next (h, c) from the gates i, f, g, o."""
    i, f, g, o = split(gates, 4, axis=1)
    c = sigmoid(f) * state[1] + sigmoid(i) * tanh(g)
    return [sigmoid(o) * tanh(c), c]


class RNNCellBase(Module):
    """Weights of one step: ``num_chunks`` gates from the input and from the state."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool, num_chunks: int) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        gates = num_chunks * hidden_size
        self.gate_hidden_size = gates
        self.weight_ih = Parameter(np.zeros((gates, input_size), dtype=np.float32))
        self.weight_hh = Parameter(np.zeros((gates, hidden_size), dtype=np.float32))
        make = Parameter if bias else Tensor
        self.bias_ih = make(np.zeros(gates, dtype=np.float32))
        self.bias_hh = make(np.zeros(gates, dtype=np.float32))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Numbers spread evenly over ±1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    @abstractmethod
    def forward(self, input: Tensor, hx: Any = None) -> Any: ...

    def _gates(self, x: Tensor, h: Tensor) -> Tensor:
        if x.ndim != 2 or x.shape[1] != self.input_size:
            raise UserError(
                f"{type(self).__name__}: the input must be (N, {self.input_size}); got {x.shape}, "
                f"input_size={self.input_size}."
            )
        return _product(x, self.weight_ih, self.bias_ih) + _product(h, self.weight_hh, self.bias_hh)

    def _state(self, x: Tensor, hx: Any, parts: int) -> tuple[Tensor, ...]:
        """The state as a tuple of ``parts`` tensors; zeros for None."""
        if hx is None:
            return (zeros((x.shape[0], self.hidden_size), device=x.device),) * parts
        state = tuple(hx) if isinstance(hx, (tuple, list)) else (hx,)
        if len(state) != parts or not all(isinstance(s, Tensor) for s in state):
            what = "a tensor h" if parts == 1 else "a tuple (h, c) of tensors"
            raise TypeError(f"{type(self).__name__}: the state must be {what}; got {type(hx).__name__}.")
        return state


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A linear layer that autocast leaves alone, as it does recurrent networks."""
    return ops.matmul.uncast(x, weight, *([] if bias is None else [bias]), tb=True)


class RNNCell(RNNCellBase):
    """h' = act(W_ih x + b_ih + W_hh h + b_hh).

    >>> M.RNNCell(3, 2)(F.ones((4, 3))).shape
    (4, 2)
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh") -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNNCell: nonlinearity must be tanh or relu; got {nonlinearity!r}.")
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, num_chunks=1)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        (h,) = self._state(input, hx, 1)
        y = self._gates(input, h)
        return tanh(y) if self.nonlinearity == "tanh" else relu(y)


class LSTMCell(RNNCellBase):
    """One step of a long short-term memory; gates in the order i, f, g, o.

    >>> h, c = M.LSTMCell(3, 2)(F.ones((4, 3)))
    >>> h.shape, c.shape
    ((4, 2), (4, 2))
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=4)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        h, c = self._state(input, hx, 2)
        new_h, new_c = lstm_step(self._gates(input, h), [h, c])
        return new_h, new_c


class RNNBase(Module):
    """What RNN and LSTM share.

    Args:
        input_size: the width of the input.
        hidden_size: the width of the state.
        num_layers: layers on top of each other.
        bias: whether the gates have biases.
        batch_first: the input is (N, L, in), else (L, N, in).
        dropout: probability of zeroing what goes from one layer to the next, in training.
        bidirectional: also run backwards over the sequence; outputs are joined.
        proj_size: kept; has no effect.

    All weights are in ``_flatten_weights``: for each layer and direction W_ih, W_hh, b_ih, b_hh.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0,
        bidirectional: bool = False,
        proj_size: int = 0,
    ) -> None:
        super().__init__()
        if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
            raise ValueError(f"dropout must be a number from 0 to 1; got {dropout!r}.")
        if not 0 <= proj_size < hidden_size:
            raise ValueError(f"proj_size must be at least 0 and below hidden_size {hidden_size}; got {proj_size}.")
        if proj_size:
            warnings.warn(f"{type(self).__name__}: proj_size is kept but has no effect, as in MegEngine.", stacklevel=3)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.num_directions = 2 if bidirectional else 1
        self.proj_size = proj_size
        self.cells = [[self.create_cell(layer) for _ in range(self.num_directions)] for layer in range(num_layers)]
        gates = self.cells[0][0].gate_hidden_size
        columns = sum(
            self._layer_input(layer) + hidden_size + (2 if bias else 0)
            for layer in range(num_layers)
            for _ in range(self.num_directions)
        )
        self._flatten_weights = Parameter(np.zeros((gates, columns), dtype=np.float32))
        self.reset_parameters()

    def _layer_input(self, layer: int) -> int:
        return self.input_size if layer == 0 else self.num_directions * self.hidden_size

    def reset_parameters(self) -> None:
        """Numbers spread evenly over ±1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    @abstractmethod
    def create_cell(self, layer: int) -> RNNCellBase:
        """The cell of a layer."""

    @abstractmethod
    def init_hidden(self, batch_size: int) -> Any:
        """A state of zeros."""

    @abstractmethod
    def get_output_from_hidden(self, hx: Any) -> Tensor:
        """The part of the state that is put out."""

    def _weights(self) -> list[list[_Weights]]:
        return cut_weights(
            self._flatten_weights,
            self._flatten_weights.shape[0],
            [self._layer_input(layer) for layer in range(self.num_layers)],
            self.hidden_size,
            self.num_directions,
            self.bias,
        )

    def _cell_mode(self) -> str:
        """The kind of cell, as the op ``recurrence`` calls it."""
        return ""

    def apply_op(self, input: Tensor, hx: Any) -> tuple[Tensor, Any]:
        """Run (L, N, in) from a state; returns the outputs and the last state."""
        states = list(hx) if isinstance(hx, (tuple, list)) else [hx]
        output, last = run_layers(input, states, self._weights(), self._cell_mode(), self._dropped)
        return output, tuple(last) if isinstance(hx, (tuple, list)) else last[0]

    def _dropped(self, y: Tensor) -> Tensor:
        """What goes from one layer to the next."""
        if self.dropout == 1 and self.training:
            return ops.fill_like(y, value=0.0)
        return dropout(y, self.dropout, self.training)

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Any]:
        if input.ndim != 3 or input.shape[2] != self.input_size or input.shape[int(self.batch_first)] == 0:
            order = "(N, L" if self.batch_first else "(L, N"
            raise UserError(
                f"{type(self).__name__}: the input must be {order}, {self.input_size}), "
                f"input_size={self.input_size}, L at least 1; got {input.shape}."
            )
        x = ops.transpose(input, perm=(1, 0, 2)) if self.batch_first else input
        zero = self.init_hidden(x.shape[1])
        if hx is not None:
            self._check_state(zero, hx)
        y, new = self.apply_op(x, zero if hx is None else hx)
        return (ops.transpose(y, perm=(1, 0, 2)) if self.batch_first else y), new

    def _check_state(self, zero: Any, state: Any) -> None:
        """A state must have the parts and sizes of one of zeros."""
        parts = isinstance(zero, tuple)
        got = list(state) if parts and isinstance(state, (tuple, list)) else [state]
        want = list(zero) if parts else [zero]
        if len(got) != len(want) or any(not isinstance(g, Tensor) or g.shape != want[0].shape for g in got):
            text = [g.shape if isinstance(g, Tensor) else type(g).__name__ for g in got]
            raise UserError(
                f"{type(self).__name__}: the state must be {'a tuple (h, c) of tensors' if parts else 'a tensor'} "
                f"of shape {want[0].shape}; got {text}."
            )

    def _zero_state(self, batch_size: int) -> Tensor:
        return zeros(
            (self.num_layers * self.num_directions, batch_size, self.hidden_size), device=self._flatten_weights.device
        )


class RNN(RNNBase):
    """A recurrent network over (L, N, in), or (N, L, in) with ``batch_first``.

    >>> y, h = M.RNN(3, 2)(F.ones((5, 4, 3)))
    >>> y.shape, h.shape
    ((5, 4, 2), (1, 4, 2))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if self.nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNN: nonlinearity must be tanh or relu; got {self.nonlinearity!r}.")
        super().__init__(*args, **kwargs)

    def _cell_mode(self) -> str:  # a network pickled by MegEngine has the public attribute alone
        return str(self.nonlinearity)

    def create_cell(self, layer: int) -> RNNCellBase:
        return RNNCell(self._layer_input(layer), self.hidden_size, self.bias, self.nonlinearity)

    def init_hidden(self, batch_size: int) -> Tensor:
        return self._zero_state(batch_size)

    def get_output_from_hidden(self, hx: Tensor) -> Tensor:
        return hx


class LSTM(RNNBase):
    """A long short-term memory over (L, N, in), or (N, L, in) with ``batch_first``.

    >>> y, (h, c) = M.LSTM(3, 2)(F.ones((5, 4, 3)))
    >>> y.shape, h.shape, c.shape
    ((5, 4, 2), (1, 4, 2), (1, 4, 2))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    def _cell_mode(self) -> str:
        return "lstm"

    def create_cell(self, layer: int) -> RNNCellBase:
        return LSTMCell(self._layer_input(layer), self.hidden_size, self.bias)

    def init_hidden(self, batch_size: int) -> tuple[Tensor, Tensor]:
        return self._zero_state(batch_size), self._zero_state(batch_size)

    def get_output_from_hidden(self, hx: tuple[Tensor, Tensor]) -> Tensor:
        return hx[0]
