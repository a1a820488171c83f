"""What a model file says of itself, as graphs made by hand know it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from types import MappingProxyType

from .. import _model_file

__all__ = ["SerializationMetadata"]


class SerializationMetadata:
    """What a model file says of itself, under the original's names; ``user_info`` is a pickle there.

    >>> from megengine.core.tensor.megbrain_graph import SerializationMetadata
    >>> metadata = SerializationMetadata()
    >>> metadata.optimize_options = 1
    >>> metadata.optimized_for_inference
    True
    """

    def __init__(self, items: Mapping[str, str] = MappingProxyType({})) -> None:
        self._items = dict(items)
        self.is_valid = "graph_modified" in items
        self.graph_modified = items.get("graph_modified") in ("1", "True")
        self.optimize_options = int(items.get("optimize_options", "0"))
        self.user_info = b""
        if "user_info.pickle.hex" in items:
            self.user_info = bytes.fromhex(items["user_info.pickle.hex"])
        elif self.is_valid:
            found = _model_file.read_metadata(items)
            self.user_info = pickle.dumps(found["user_info"] if found else None, protocol=4)

    @property
    def optimized_for_inference(self) -> bool:
        """Whether the model was rewritten before it was written."""
        return self.optimize_options != 0 or self._items.get("optimized_for_inference") in ("1", "True")

    def _written(self) -> list[tuple[str, str]]:
        """As a file of ours holds it."""
        flags = {"graph_modified": self.graph_modified, "optimized_for_inference": self.optimized_for_inference}
        items = {name: str(int(flag)) for name, flag in flags.items()}
        items["optimize_options"] = str(self.optimize_options)
        if self.user_info:
            info = self.user_info.encode() if isinstance(self.user_info, str) else self.user_info
            items["user_info.pickle.hex"] = info.hex()
        return [*items.items()]
