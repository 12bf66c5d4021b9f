"""What to write where a value in registers meets one that units hold otherwise."""

from __future__ import annotations

from tilefoundry.ir.expr import Dim, Expr, IterVar
from tilefoundry.tir.program import Issue, View


def held_alike(issue: Issue | None, view: View) -> str:
    """The layout in which the value behind ``view`` lies as what it meets in ``issue``, to be
    pasted; in words where its axes are not those of the other."""
    others = [] if issue is None else [*issue.writes, *issue.reads]
    for other in others:
        if not isinstance(other, View) or other.buffer is view.buffer or other.storage != "rmem":
            continue
        layout = _as_held(view, other)
        if layout:
            storage = view.buffer.storage
            return f'hold {view.buffer.name} so: tf.reshard(..., {layout}, "{storage}")'
    return "distribute both values alike"


def _as_held(view: View, other: View) -> str:
    """The modes of ``other``'s buffer along the axes that ``view``'s buffer has; empty where they
    are not the same axes, whole."""
    layout = other.buffer.layout
    lead = len(other.vars) - len(view.vars)
    if layout is None or lead < 0:
        return ""
    across = {_alone(x): n for n, x in enumerate(other.index)}
    groups = layout.groups(other.buffer.shape)
    words: list[str] = []
    for extent, place in zip(view.buffer.shape, view.index, strict=True):
        var = _alone(place)
        if var is None or var not in view.vars:
            if extent == 1:
                words.append("1")
                continue
            return ""
        axis = across.get(other.vars[view.vars.index(var) + lead])
        if axis is None or other.buffer.shape[axis] != extent:
            return ""
        for mode in groups[axis]:
            held = layout.axes[mode]
            words.append(f"{layout.modes[mode]} @ {held.name}" if held else f"{layout.modes[mode]}")
    return f"({', '.join(words)}{',' if len(words) == 1 else ''})"


def _alone(x: Dim) -> IterVar | None:
    """The variable that ``x`` is, if it is just that."""
    if isinstance(x, Expr) and len(x.terms) == 1:
        ((mono, coef),) = x.terms
        if coef == 1 and len(mono) == 1 and isinstance(mono[0], IterVar):
            return mono[0]
    return None
