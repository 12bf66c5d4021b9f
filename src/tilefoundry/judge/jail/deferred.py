"""The part of torch that no process without an author's code needs, imported after the rest.

``torch/__init__.py`` ends with importing what its operations' results look like to compilers
(shapes without data, decompositions): a third of all that importing torch takes. A process of
ours that evaluates on data never asks for it, and so it is forked before; all others are forked
when the module has been executed, where it stands, as it is written.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

DEFERRED = "torch._meta_registrations"


class Deferred(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module as usual, and executes it when :meth:`finish` is called."""

    def __init__(self) -> None:
        self._loader: importlib.abc.Loader | None = None
        self._module: ModuleType | None = None
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != DEFERRED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        assert self._loader is not None
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._module = module

    def finish(self) -> None:
        """Execute what was deferred; from now on nothing tells that it was."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        module, loader = self._module, self._loader
        self._module = self._loader = None
        if module is None or loader is None or module.__spec__ is None:
            return
        module.__spec__.loader = module.__loader__ = loader
        loader.exec_module(module)
