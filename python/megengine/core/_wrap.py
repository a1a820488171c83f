"""Names of the original's private module that programs import."""

from __future__ import annotations

from typing import Any

from ._core import CompNode, get_default_device


class Device:
    """A device by name, or the default one; ``to_c`` gives what tensors carry.

    >>> from megengine.core._wrap import Device
    >>> str(Device("cpu0")), Device("cpu0") == Device("cpu0:0")
    ('cpu0:0', True)
    """

    def __init__(self, device: Any = None) -> None:
        if isinstance(device, Device):
            device = device.to_c()
        elif device is None:
            device = get_default_device()
        self._cn: CompNode = device if isinstance(device, CompNode) else CompNode(device)
        self.logical_name = self._cn.logical_name

    def to_c(self) -> CompNode:
        """The device as the engine names it."""
        return self._cn

    def __repr__(self) -> str:
        return repr(self._cn)

    def __str__(self) -> str:
        return str(self._cn)

    def __eq__(self, other: object) -> bool:
        return bool(self._cn == (other._cn if isinstance(other, Device) else other))

    def __hash__(self) -> int:
        return hash(self._cn)


def as_device(obj: Any) -> Device:
    """``obj`` as a Device: one, a name, a device of the engine or a tensor."""
    return obj if isinstance(obj, Device) else Device(getattr(obj, "device", obj))


def device(obj: Any) -> Any:
    """``obj`` as a Device; one stays as it is."""
    return obj if isinstance(obj, Device) else Device(obj)
