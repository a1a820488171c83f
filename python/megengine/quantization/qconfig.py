"""Which observers and fake-quant modules a QAT module gets."""

from __future__ import annotations

from collections import namedtuple
from functools import partial
from typing import Any

from .fake_quant import TQT, FakeQuantize
from .observer import (
    ExponentialMovingAverageObserver,
    HistogramObserver,
    MinMaxObserver,
    Observer,
    PassiveObserver,
    SyncExponentialMovingAverageObserver,
    SyncMinMaxObserver,
)

__all__ = [
    "QConfig",
    "calibration_qconfig",
    "easyquant_qconfig",
    "ema_fakequant_qconfig",
    "ema_lowbit_fakequant_qconfig",
    "min_max_fakequant_qconfig",
    "passive_qconfig",
    "per_channel_fakequant_qconfig",
    "sync_ema_fakequant_qconfig",
    "tqt_qconfig",
]


class QConfig(namedtuple("QConfig", ["weight_observer", "act_observer", "weight_fake_quant", "act_fake_quant"])):
    """Makers of observers and fake-quant modules; None where there shall be none.

    Each field is called without arguments for every module: a class, or ``functools.partial(cls, ...)``.

    >>> from functools import partial
    >>> from megengine.quantization import FakeQuantize, MinMaxObserver, QConfig
    >>> observer, fake = partial(MinMaxObserver, dtype="qint4"), partial(FakeQuantize, dtype="qint4")
    >>> QConfig(observer, observer, fake, fake).act_observer().qmax
    7
    """

    __slots__ = ()

    def __new__(cls, weight_observer: Any, act_observer: Any, weight_fake_quant: Any, act_fake_quant: Any) -> QConfig:
        if isinstance(weight_observer, Observer) or isinstance(act_observer, Observer):
            raise ValueError(
                "QConfig must not receive observer instance: each module needs its own. Pass "
                "functools.partial(MinMaxObserver, dtype='qint8') instead of MinMaxObserver(dtype='qint8')."
            )
        return super().__new__(cls, weight_observer, act_observer, weight_fake_quant, act_fake_quant)


def _fake(weight: str, act: str) -> tuple[Any, Any]:
    return partial(FakeQuantize, dtype=weight), partial(FakeQuantize, dtype=act)


_NARROW, _FULL, _LOW = "qint8_narrow", "qint8", "qint4"

#: The range of all that was seen.
min_max_fakequant_qconfig = QConfig(
    partial(MinMaxObserver, dtype=_NARROW), partial(MinMaxObserver, dtype=_FULL), *_fake(_NARROW, _FULL)
)
#: Activations by a moving average of their range: the default.
ema_fakequant_qconfig = QConfig(
    partial(MinMaxObserver, dtype=_NARROW),
    partial(ExponentialMovingAverageObserver, dtype=_FULL),
    *_fake(_NARROW, _FULL),
)
#: The default with a scale for each output channel of a weight: for filters that differ in size, as depthwise ones do.
per_channel_fakequant_qconfig = QConfig(
    partial(MinMaxObserver, dtype=_NARROW, per_channel=True),
    partial(ExponentialMovingAverageObserver, dtype=_FULL),
    *_fake(_NARROW, _FULL),
)
#: The same over all processes.
sync_ema_fakequant_qconfig = QConfig(
    partial(SyncMinMaxObserver, dtype=_NARROW),
    partial(SyncExponentialMovingAverageObserver, dtype=_FULL),
    *_fake(_NARROW, _FULL),
)
#: 4 bits.
ema_lowbit_fakequant_qconfig = QConfig(
    partial(MinMaxObserver, dtype=_LOW), partial(ExponentialMovingAverageObserver, dtype=_LOW), *_fake(_LOW, _LOW)
)
#: Looks at data and simulates nothing.
calibration_qconfig = QConfig(
    partial(MinMaxObserver, dtype=_NARROW), partial(HistogramObserver, dtype=_FULL), None, None
)
#: Scales that are powers of two and learnt.
tqt_qconfig = QConfig(None, None, partial(TQT, dtype=_NARROW), partial(TQT, dtype=_FULL))
#: Scales that are set from outside.
passive_qconfig = QConfig(
    partial(PassiveObserver, dtype=_NARROW), partial(PassiveObserver, dtype=_FULL), *_fake(_NARROW, _FULL)
)
#: What ``apply_easy_quant`` searches.
easyquant_qconfig = passive_qconfig
