"""The state of parsing one function: names in scope, the builder, the surroundings."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilefoundry.diag import Span, refuse
from tilefoundry.ir.mesh import Mesh, Topology
from tilefoundry.lang.build import Builder
from tilefoundry.lang.forms import Dropped
from tilefoundry.lang.source import span_of

_MISSING = object()


@dataclass
class Frame:
    """One function being parsed. ``signature_of`` types a sibling on demand."""

    file: str
    builder: Builder
    outside: Mapping[str, Any]
    siblings: Mapping[str, Any]
    topologies: tuple[Topology, ...]
    levels: tuple[str, ...]
    signature_of: Callable[[Any, Span], Any]
    names: dict[str, Any] = field(default_factory=dict)

    def span(self, node: ast.AST) -> Span:
        return span_of(self.file, node)

    @property
    def mesh(self) -> Mesh:
        return self.builder.mesh

    def look_up(self, name: str, span: Span) -> Any:
        """The value of a name: local, sibling function, module-level, built-in."""
        found = self.names.get(name, _MISSING)
        if found is _MISSING:
            for place in (self.siblings, self.outside, vars(builtins)):
                if name in place:
                    return place[name]
            near = _near(name, {**self.names, **self.siblings, **self.outside})
            refuse("name-unknown", span, name=name, near=near)
        if isinstance(found, Dropped):
            refuse("name-dropped", span, name=name, why=found.why, fix=found.fix.format(name=name))
        return found


def _near(name: str, known: Mapping[str, Any]) -> str:
    import difflib

    close = difflib.get_close_matches(name, [n for n in known if not n.startswith("_")], 3)
    return f"; did you mean {' or '.join(close)}?" if close else ""
