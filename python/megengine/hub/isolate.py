"""Modules of repositories, kept apart: each repository finds its own and nobody else's.

Repositories call their packages ``models`` or ``utils``, all of them. While code of a repository imports, its modules
take the place of others of those names in ``sys.modules``, and afterwards make room again.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

#: Never looked for in a repository, whatever folders it has.
_SHARED = frozenset(sys.stdlib_module_names) | {"megengine", "megenginelite", "numpy"}
_lock = threading.RLock()
_repositories: dict[str, Repository] = {}
_inside: list[Repository] = []


class Repository(MetaPathFinder):
    """The modules of one folder.

    Args:
        folder: the top of the repository.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._modules: dict[str, ModuleType] = {}
        self._hidden: dict[str, ModuleType] = {}
        self._tops: dict[str, bool] = {}  # whether names are this repository's
        # What functions of the repository find as __import__, whenever they run.
        self._builtins = {**vars(builtins), "__import__": self._import}

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Imports in this block find the modules of this repository, and of no other one."""
        with _lock:
            if _inside and _inside[-1] is self:
                yield
                return
            if _inside:
                _inside[-1]._leave()
            _inside.append(self)
            self._enter()
            try:
                yield
            finally:
                self._leave()
                _inside.pop()
                if _inside:
                    _inside[-1]._enter()

    def _mine(self, name: str) -> bool:
        """Whether the repository has a module of this name."""
        top = name.partition(".")[0]
        if top not in self._tops:
            path = os.path.join(self.folder, top)
            here = os.path.isfile(path + ".py") or os.path.isdir(path)
            self._tops[top] = here and top not in _SHARED
        return self._tops[top]

    def _enter(self) -> None:
        tops = {name.partition(".")[0] for name in sys.modules}
        mine = {top for top in tops if self._mine(top)}
        self._hidden = {n: sys.modules.pop(n) for n in list(sys.modules) if n.partition(".")[0] in mine}
        sys.modules.update(self._modules)
        sys.meta_path.insert(0, self)

    def _leave(self) -> None:
        sys.meta_path.remove(self)
        self._modules = {n: sys.modules.pop(n) for n in list(sys.modules) if self._owns(sys.modules[n])}
        sys.modules.update(self._hidden)
        self._hidden = {}

    def _owns(self, module: ModuleType) -> bool:
        spec = getattr(module, "__spec__", None)
        places = [getattr(spec, "origin", None), *(getattr(spec, "submodule_search_locations", None) or ())]
        return any(isinstance(p, str) and p.startswith(self.folder + os.sep) for p in places)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module of the repository is; part of Python's import."""
        if not self._mine(fullname):
            return None
        spec = PathFinder.find_spec(fullname, [self.folder] if path is None else path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path, self)
        return spec

    def _import(
        self, name: str, globals: Any = None, locals: Any = None, fromlist: Sequence[str] = (), level: int = 0
    ) -> ModuleType:
        if level == 0 and not self._mine(name):
            return builtins.__import__(name, globals, locals, fromlist, level)
        with self.inside():
            return builtins.__import__(name, globals, locals, fromlist, level)

    def run(self, module: ModuleType, code: CodeType) -> None:
        """Run a module's code so that whatever it defines imports from this repository, now and later."""
        module.__dict__["__builtins__"] = self._builtins
        exec(code, module.__dict__)

    def run_file(self, name: str, path: str) -> ModuleType:
        """Run a file of the repository, as it is now, as a module called ``name`` that no import finds."""
        spec = ModuleSpec(name, _Loader(name, path, self), origin=path)
        spec.has_location = True
        self._tops.clear()
        importlib.invalidate_caches()
        with self.inside():
            module = importlib.util.module_from_spec(spec)
            self.run(module, compile(Path(path).read_bytes(), path, "exec", dont_inherit=True))
        return module


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, repository: Repository) -> None:
        super().__init__(name, path)
        self._repository = repository

    def get_code(self, fullname: str) -> CodeType:
        """From the source: compiled files that came with a repository are no part of its hash."""
        return compile(self.get_data(self.path), self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        """Part of Python's import."""
        self._repository.run(module, self.get_code(module.__name__))


def repository(folder: str, *, fresh: bool = False) -> Repository:
    """The repository in a folder; ``fresh`` forgets what was imported from it before."""
    folder = os.path.realpath(folder)
    with _lock:
        if fresh:
            _repositories.pop(folder, None)
        return _repositories.setdefault(folder, Repository(folder))
