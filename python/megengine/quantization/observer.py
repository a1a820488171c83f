"""Observers: modules that look at what passes and say which scale and zero point fit it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from .. import functional as F
from ..core.autodiff._recomputing import kept, recomputing
from ..core.tensor.dtype import QuantDtypeMeta
from ..module.module import Module
from ..tensor import Tensor
from ._histogram import Histogram
from .fake_quant import _check_dtype, _dtype_meta
from .utils import QParams, QParamsModuleMixin, QuantMode, create_qparams

__all__ = [
    "ExponentialMovingAverageObserver",
    "HistogramObserver",
    "MinMaxObserver",
    "Observer",
    "PassiveObserver",
    "SyncExponentialMovingAverageObserver",
    "SyncMinMaxObserver",
]

_LARGEST = float(np.finfo(np.float32).max)


class Observer(Module, QParamsModuleMixin):
    """The base of observers.

    ``net.eval()`` stops them looking and ``net.train()`` lets them go on.

    Args:
        dtype: what the tensor is to be quantised to, as a name or a ``QuantDtypeMeta``.
    """

    def __init__(self, dtype: str | QuantDtypeMeta, **kwargs: Any) -> None:
        meta = _dtype_meta(dtype, kwargs)
        super().__init__(**kwargs)
        self.dtype = meta
        self.qmin = meta.qmin
        self.qmax = meta.qmax
        self.enabled = True

    def enable(self) -> None:
        """Look at what passes from now on."""
        self.enabled = True

    def disable(self) -> None:
        """Keep what is known."""
        self.enabled = False

    def train(self, mode: bool = True, recursive: bool = True) -> None:
        super().train(mode, recursive)
        if mode:
            self.enable()
        else:
            self.disable()

    def _looks(self) -> bool:
        """Not when a checkpointed part runs again: what passes was seen the first time."""
        return self.enabled and not recomputing()

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Look at x, and hand it on."""


class NoDataError(ValueError):
    """An observer that has seen nothing has no scale to give."""


class MinMaxObserver(Observer):
    """The least and the largest value of all that passed; 0 always counts as seen.

    Args:
        mode: whether the integer 0 stands for 0 (``SYMMERTIC``), or some zero point does.
        eps: the least scale.
        dtype: what the tensor is to be quantised to.
        per_channel: one scale for each output channel of a weight; the layer says which axes those are.

    >>> from megengine.quantization import MinMaxObserver
    >>> observer = MinMaxObserver(dtype="qint8")
    >>> observer(mge.tensor([-1.0, 2.55])).tolist()
    [-1.0, 2.54999...]
    >>> round(observer.get_qparams().scale.item(), 4)
    0.02
    """

    per_channel = False  # files of MegEngine 1.13 do not say

    def __init__(
        self,
        mode: QuantMode = QuantMode.SYMMERTIC,
        eps: float = 0.00001,
        dtype: str | QuantDtypeMeta = "qint8",
        per_channel: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype, **kwargs)
        self.per_channel = per_channel
        self.mode = mode
        self.min_val = Tensor(_LARGEST, dtype="float32")
        self.max_val = Tensor(-_LARGEST, dtype="float32")
        self.scale_limit = eps

    def _calculate_qparams(self, inp_min_val: Tensor, inp_max_val: Tensor) -> QParams:
        low, high = F.minimum(inp_min_val, 0.0), F.maximum(inp_max_val, 0.0)
        if self.mode is QuantMode.SYMMERTIC:
            reach = F.maximum(-low, high)
            scale = F.maximum(reach / ((self.qmax - self.qmin) / 2), self.scale_limit)
            return create_qparams(self.mode, self.dtype, scale=scale)
        scale = F.maximum((high - low) / (self.qmax - self.qmin), self.scale_limit)
        return create_qparams(self.mode, self.dtype, scale=scale, zero_point=self.qmin - F.round(low / scale))

    def get_qparams(self) -> QParams:
        return self._calculate_qparams(kept(self.min_val, Tensor), kept(self.max_val, Tensor))

    def has_seen(self) -> bool:
        """Whether any data passed, so that there is a range."""
        return not np.any(self.min_val.numpy() > self.max_val.numpy())

    def get_quantized_dtype(self) -> np.dtype[Any]:
        if not self.has_seen():
            raise NoDataError(
                f"{type(self).__name__}: has seen no data, so there is no scale that fits. Run data through the "
                "network in training mode (observers are off in evaluation mode) before it is quantised."
            )
        return super().get_quantized_dtype()

    def set_channels(self, shape: Sequence[int], axes: Sequence[int]) -> None:
        """From now on a range for each index of ``axes`` of tensors of this shape."""
        kept = tuple(n if i in axes else 1 for i, n in enumerate(shape))
        self.min_val._reset(F.full(kept, _LARGEST))
        self.max_val._reset(F.full(kept, -_LARGEST))

    def _range(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Least and largest of this call, in float32."""
        low = high = x.astype("float32")
        if not self.per_channel:
            return F.min(low), F.max(high)
        if self.min_val.ndim != x.ndim:
            raise ValueError(
                f"{type(self).__name__}: per_channel=True is for the weight of a layer, which knows its channels; got "
                f"a tensor of shape {x.shape}. Use it as weight_observer of a QConfig."
            )
        for axis, n in enumerate(self.min_val.shape):
            if n == 1:
                low, high = F.min(low, axis, keepdims=True), F.max(high, axis, keepdims=True)
        return low, high

    def _take(self, low: Tensor, high: Tensor) -> None:
        self.min_val._reset(F.minimum(self.min_val, low))
        self.max_val._reset(F.maximum(self.max_val, high))

    def forward(self, x_orig: Tensor) -> Tensor:
        if self._looks():
            self._take(*self._range(x_orig.detach()))
        return x_orig


class _Everywhere(MinMaxObserver):
    """The range of a call over all processes."""

    def _range(self, x: Tensor) -> tuple[Tensor, Tensor]:
        from .. import distributed

        low, high = super()._range(x)
        if not distributed.is_distributed():
            return low, high
        reduce = distributed.functional
        return reduce.all_reduce_min(low, distributed.WORLD), reduce.all_reduce_max(high, distributed.WORLD)


class SyncMinMaxObserver(_Everywhere):
    """``MinMaxObserver`` over what passed in all processes."""

    def forward(self, x_orig: Tensor) -> Tensor:
        return super().forward(x_orig)


class ExponentialMovingAverageObserver(MinMaxObserver):
    """A moving average of the least and the largest value of each call.

    Args:
        momentum: the part of the old value that is kept; the first call is taken whole.
        mode: whether the integer 0 stands for 0.
        eps: the least scale.
        dtype: what the tensor is to be quantised to.
    """

    def __init__(
        self,
        momentum: float = 0.9,
        mode: QuantMode = QuantMode.SYMMERTIC,
        eps: float = 0.00001,
        dtype: str | QuantDtypeMeta = "qint8",
        **kwargs: Any,
    ) -> None:
        super().__init__(mode, eps, dtype, **kwargs)
        self.momentum = Tensor(momentum, dtype="float32")
        # 0 until the first call is over. A tensor, so that a trace of that call is right for later ones.
        self.runtime_momentum = Tensor(0.0, dtype="float32")

    def set_momentum(self, momentum: float) -> None:
        """Keep another part of the old value from now on."""
        self.momentum._reset(Tensor(momentum, dtype="float32"))
        if self.runtime_momentum.item() != 0:
            self.runtime_momentum._reset(self.momentum)

    def _take(self, low: Tensor, high: Tensor) -> None:
        keep = self.runtime_momentum
        self.min_val._reset(self.min_val * keep + (1 - keep) * low)
        self.max_val._reset(self.max_val * keep + (1 - keep) * high)
        self.runtime_momentum._reset(self.momentum)

    def forward(self, x_orig: Tensor) -> Tensor:
        return super().forward(x_orig)


class SyncExponentialMovingAverageObserver(ExponentialMovingAverageObserver, _Everywhere):
    """``ExponentialMovingAverageObserver`` over what passed in all processes."""


class HistogramObserver(MinMaxObserver):
    """Cuts the range where a histogram says that the error of quantisation becomes least.

    For calibration: it looks on in evaluation mode too, until ``disable()``. It reads values on the host, so a trace
    of it runs its Python body in every call.

    Args:
        bins: of the histogram.
        upsample_rate: parts that a bin is divided into when the range grows.
        mode: whether the integer 0 stands for 0.
        eps: the least scale.
        dtype: name of what the tensor is to be quantised to.
    """

    def __init__(
        self,
        bins: int = 2048,
        upsample_rate: int = 128,
        mode: QuantMode = QuantMode.SYMMERTIC,
        eps: float = 0.00001,
        dtype: str | QuantDtypeMeta = "qint8",
        **kwargs: Any,
    ) -> None:
        super().__init__(mode, eps, dtype, **kwargs)
        if self.per_channel:
            raise NotImplementedError("HistogramObserver: has one histogram; MinMaxObserver takes per_channel=True.")
        self.bins = bins
        self.upsample_rate = upsample_rate
        self.dst_nbins = self.qmax - self.qmin + 1
        self.histogram = Tensor(np.array([-1.0] + [0.0] * (bins - 1), dtype=np.float32))

    def train(self, mode: bool = True, recursive: bool = True) -> None:
        Module.train(self, mode, recursive)

    def _seen(self) -> Histogram | None:
        counts = self.histogram.numpy()
        if counts[0] == -1:
            return None
        return Histogram(counts, float(self.min_val.item()), float(self.max_val.item()))

    def get_qparams(self) -> QParams:
        seen = self._seen()
        if seen is None:  # the range of nothing
            return super().get_qparams()
        low, high = seen.best_range(self.dst_nbins)
        return self._calculate_qparams(Tensor(low, dtype="float32"), Tensor(high, dtype="float32"))

    def sideeffect_forward(self, x_orig: Tensor) -> None:
        """Count the values of x."""
        values = x_orig.numpy().astype(np.float32)
        if values.size == 0:
            return
        seen = self._seen()
        now = Histogram.of(values, self.bins) if seen is None else seen.with_values(values, self.upsample_rate)
        self.histogram._reset(Tensor(now.counts.astype(np.float32)))
        self.min_val._reset(Tensor(now.low, dtype="float32"))
        self.max_val._reset(Tensor(now.high, dtype="float32"))

    def forward(self, x_orig: Tensor) -> Tensor:
        if self._looks():
            self.sideeffect_forward(x_orig.detach())
        return x_orig


class PassiveObserver(Observer):
    """Looks at nothing: its scale is set from outside.

    >>> from megengine.quantization import PassiveObserver, create_qparams
    >>> observer = PassiveObserver("qint8")
    >>> observer.set_qparams(create_qparams(dtype_meta="qint8", scale=mge.tensor(0.5)))
    >>> observer.scale = 0.25
    >>> observer.scale.item(), observer.orig_scale.item()
    (0.25, 0.5)
    """

    def __init__(self, dtype: str | QuantDtypeMeta, **kwargs: Any) -> None:
        super().__init__(dtype, **kwargs)
        self.qparams: QParams | None = None
        self.orig_scale: np.ndarray[Any, Any] | None = None

    @property
    def scale(self) -> Tensor:
        """The scale as it is now."""
        now: Tensor = self._set().scale
        return now

    @scale.setter
    def scale(self, value: Any) -> None:
        array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
        assert np.all(array > 0), f"PassiveObserver: the scale must be above 0; got {array}."
        self._set().scale._reset(Tensor(array, dtype="float32"))

    def _set(self) -> Any:
        assert self.qparams is not None, "PassiveObserver: has no scale yet; set_qparams gives it one."
        return self.qparams

    def get_qparams(self) -> Any:
        return self.qparams

    def set_qparams(self, qparams: QParams) -> None:
        """Take over a copy of these parameters."""
        _check_dtype(qparams, self.dtype)
        assert qparams.scale is not None, "Can not get an initialized scale"
        self.qparams = deepcopy(qparams)
        if not isinstance(self.qparams.scale, Tensor):
            self.qparams.scale = Tensor(self.qparams.scale, dtype="float32")
        self.orig_scale = self.qparams.scale.numpy()

    def forward(self, x: Tensor) -> Tensor:
        return x
