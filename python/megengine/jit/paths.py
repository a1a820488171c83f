"""The ways to call a traced function one by one, and what a compiler of somebody else has to bring.

``trace`` chooses its way by ``without_host``. A subclass that sets ``third_party_backend = True`` and defines
``compile`` and ``execute`` gets its function recorded by the first call and is asked to run it from the second on.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from ..module import Module
from ..tensor import Tensor


def _tensors(obj: Any) -> Iterator[Tensor]:
    if isinstance(obj, Tensor):
        yield obj
    elif isinstance(obj, (list, tuple)):
        for o in obj:
            yield from _tensors(o)
    elif isinstance(obj, Mapping):
        for o in obj.values():
            yield from _tensors(o)


class CallPaths:
    """What ``trace`` offers besides being called; ``self`` is a ``trace``."""

    third_party_backend = False
    overall = True
    __wrapped__: Any
    without_host: bool

    def trace_normal(self, *args: Any, **kwargs: Any) -> Any:
        """Calls it in host mode, whatever ``without_host`` says: Python runs and is checked.

        >>> from megengine.jit import trace
        >>> trace(lambda x: x * 2, without_host=True).trace_normal(mge.tensor([1.0])).item()
        2.0
        """
        return (self._other() if self.without_host else self)(*args, **kwargs)  # type: ignore[operator]

    def trace_without_host(self, *args: Any, **kwargs: Any) -> Any:
        """Calls it by its compiled program alone; for traces made with ``without_host=True``."""
        if not self.without_host:
            raise AssertionError(
                "trace_without_host: the trace was made without without_host=True; make it with that, or just call it."
            )
        return self(*args, **kwargs)  # type: ignore[operator]

    trace_without_host_overall = trace_without_host

    def _other(self) -> Any:
        """The same function in host mode, with recordings of its own."""
        other = self.__dict__.get("_host_twin")
        if other is None:
            other = copy.copy(self)
            other.without_host = False
            self.__dict__["_host_twin"] = other
        return other

    def flatten_inputs(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        """The tensors that a call with these arguments reads: those given, then the tensors of modules.

        >>> from megengine.jit import trace
        >>> len(trace(lambda x, net: net(x)).flatten_inputs(mge.tensor([1.0]), net=M.Linear(1, 2)))
        3
        """
        given = [*args, *kwargs.values()]
        found = list(_tensors(given))
        for obj in given:
            if isinstance(obj, Module):
                found += obj.parameters()
                found += obj.buffers()
        return found

    def convert_optimizer_state_to_tensor(self, *args: Any, **kwargs: Any) -> None:
        """Makes the numbers in the groups of the optimizers among the arguments tensors."""
        for obj in (*args, *kwargs.values()):
            if not hasattr(obj, "param_groups"):
                continue
            for group in obj.param_groups:
                for name, value in group.items():
                    if isinstance(value, (int, float)) and not isinstance(value, bool):
                        group[name] = Tensor(value, dtype="float32")

    def setup_without_host(self) -> None:
        """There is nothing to set up: recordings know what they need."""

    def setup_io_without_trace(self, inputs: Any, outputs: Any) -> NoReturn:
        """Would name the inputs and outputs of a program that was not recorded by calling."""
        raise AssertionError("setup_io_without_trace: a traced function is recorded by calling it; call it once.")

    # Hooks of a subclass with a backend of its own.

    def setup_env(self) -> None:
        """Called before ``compile`` and ``execute``."""

    def unset_env(self) -> None:
        """Called after them."""

    def compile(self) -> None:
        """Makes the program of the recorded call; once, before the first ``execute``."""
        self._no_backend("compile")

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """Runs that program."""
        self._no_backend("execute")

    def compile_and_exec(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program, which is made before it runs first."""
        self.setup_env()
        try:
            if not self.__dict__.get("_compiled"):
                self.compile()
                self.__dict__["_compiled"] = True
            return self.execute(*args, **kwargs)
        finally:
            self.unset_env()

    def _no_backend(self, what: str) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__}.{what}: a hook for compilers of others, which a subclass defines; this one "
            "compiles by itself when it is called."
        )
