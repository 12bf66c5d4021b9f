"""The child's side of what a twin may not compute with: the evaluator, and libraries.

The evaluator is withheld from every twin. Calls of libraries are recorded where the caller
allows none. Both are seen in the candidate's own process: a candidate that goes to lengths
to hide them can, and what it did to that end stands in the sources that the report names.
What the parent sees of it from outside (``artefacts``) it cannot hide.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from tilefoundry.diag import refuse

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


def _refuse(*_: Any, **__: Any) -> NoReturn:
    from tilefoundry.diag import refuse

    refuse("check-evaluator-called", None)


class _Withheld(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        refuse("check-evaluator-called", None)


@contextmanager
def recorded(called: list[str]) -> Iterator[None]:
    """Note the operations of torch that compute, and arrays that numpy is given."""
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Operations(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            name = func.overloadpacket.__name__
            if func.namespace != "aten" or name not in MOVES:
                called.append(f"torch's {func.overloadpacket}")
            return func(*args, **(kwargs or {}))

    class Arrays(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            name = getattr(func, "__name__", "")
            if name in ("numpy", "__array__", "tolist"):
                called.append(f"{name} of a tensor")
            return func(*args, **(kwargs or {}))

    with Operations(), Arrays():
        yield
