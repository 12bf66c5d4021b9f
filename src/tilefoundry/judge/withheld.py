"""The child's side of what a twin may not compute with: the evaluator, and libraries.

The evaluator is withheld from every twin. Calls of libraries are recorded where the caller
allows none. Both are seen in the candidate's own process: a candidate that goes to lengths
to hide them can, and what it did to that end stands in the sources that the report names.
What the parent sees of it from outside (``artefacts``) it cannot hide.
"""

from __future__ import annotations

import sys
import threading
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any, NoReturn

from tilefoundry.diag import refuse
from tilefoundry.ops.base import Op

EVALUATORS = {"tilefoundry.evaluate.run": "Evaluator", "tilefoundry.interpret.run": "run_program"}
"""Modules that give a program its meaning, and what of them does."""
MOVES = frozenset(
    [
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "zeros"),
        *("zeros_like", "new_zeros", "full", "full_like", "new_full", "ones", "ones_like"),
        *("fill_", "zero_", "copy_", "clone", "_to_copy", "to", "detach", "contiguous"),
        *("view", "_unsafe_view", "reshape", "alias", "as_strided", "slice", "select", "narrow"),
        *("permute", "transpose", "t", "expand", "squeeze", "unsqueeze", "split", "chunk"),
        *("unbind", "lift_fresh", "resize_", "set_", "_local_scalar_dense", "record_stream"),
        *("scalar_tensor", "_reshape_alias", "view_as", "flatten", "unfold", "pin_memory"),
    ]
)
"""Operations of torch that make, move and view tensors."""


def withhold() -> None:
    """Refuse from now on whoever asks for the meaning of a program."""
    for name, key in EVALUATORS.items():
        known = sys.modules.get(name)
        if isinstance(known, _Withheld):
            continue
        if known is not None:
            subject = getattr(known, key)
            if isinstance(subject, type):
                subject.__init__ = _refuse  # type: ignore[method-assign]
            else:
                subject.__code__ = _refuse.__code__
        sys.modules[name] = _Withheld(name)
    for kind in _kinds(Op):
        kind.evaluate = _refuse  # type: ignore[method-assign]
    Op.__init_subclass__ = classmethod(_without_meaning)  # type: ignore[assignment]


def _kinds(kind: type[Op]) -> Iterator[type[Op]]:
    yield kind
    for lower in kind.__subclasses__():
        yield from _kinds(lower)


def _without_meaning(kind: type[Op], **_: Any) -> None:
    """What becomes of operations that are declared from now on."""
    kind.evaluate = _refuse  # type: ignore[method-assign]


def _refuse(*_: Any, **__: Any) -> NoReturn:
    from tilefoundry.diag import refuse

    refuse("check-evaluator-called", None)


class _Withheld(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        refuse("check-evaluator-called", None)


class Recorder:
    """Notes the operations of torch that compute, on every thread of the candidate's.

    Made before the candidate is loaded: a thread that it starts is recorded from its first step.
    numpy is not there at all.
    """

    def __init__(self) -> None:
        from torch.utils._python_dispatch import TorchDispatchMode

        called = self.called = []

        class Operations(TorchDispatchMode):
            @classmethod
            def _should_skip_dynamo(cls) -> bool:
                return False  # else torch imports its compiler, which does not do without numpy

            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
                if func.namespace != "aten" or func.overloadpacket.__name__ not in MOVES:
                    called.append(f"torch's {func.overloadpacket}")
                return func(*args, **(kwargs or {}))

        self._mode = Operations
        threading.setprofile(self._begin)

    called: list[str]

    def _begin(self, *_: Any) -> None:
        """The first step of a thread: from here on its operations are seen."""
        sys.setprofile(None)
        self._mode().__enter__()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Operations of the calling thread are noted."""
        with self._mode():
            yield


class _Absent(MetaPathFinder):
    """numpy is a library, and what it computes cannot be seen. Packages that do without it find
    it missing; who imports it otherwise is refused."""

    homes: tuple[str, ...] = ("",)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname.partition(".")[0] != "numpy":
            return
        frame = sys._getframe(1)
        while frame.f_back and frame.f_code.co_filename.startswith("<frozen importlib"):
            frame = frame.f_back
        if not frame.f_code.co_filename.startswith(self.homes):
            refuse("check-library-called", None, what="numpy")
        raise ModuleNotFoundError("No module named 'numpy'", name="numpy")


def absent() -> None:
    """Withhold numpy for good, and import torch, which goes on without it."""
    if any(isinstance(finder, _Absent) for finder in sys.meta_path):
        return
    finder = _Absent()
    sys.meta_path.insert(0, finder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch

        torch.empty(1)[0]  # torch looks for numpy once, at the first index
    finder.homes = (str(Path(torch.__file__).parents[1]), sys.base_prefix)


def recorder() -> Recorder:
    """Withhold numpy; then record what torch is asked."""
    absent()
    return Recorder()
