"""Which unit holds which elements of registers: no unit uses what it does not hold, and what is
stored to memory is stored whole.

A layout says of each element the coordinates of the units that hold it (its digits). An issue is
carried out, element by element, by the units that hold what it writes, or what it stores. So
they must hold what it reads too; and where units store to one place, all that hold a part must.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product as cartesian
from math import prod

from tilefoundry.ir.expr import Dim, Expr, Sym, evaluate, floordiv, mod, substitute, symbols
from tilefoundry.ir.mesh import Axis, Coord
from tilefoundry.targets.instructions import TILED
from tilefoundry.tir.program import For, Issue, Stmt, View, When, With
from tilefoundry.verify.finding import Findings
from tilefoundry.verify.roles import UNIT, Layout, Site, coordinate

MOST = 1 << 16
"""Elements up to which holders are compared one by one."""
Shares = Mapping[Axis, Dim]
"""For each axis that splits a view, the coordinate of who holds element ``vars``."""
Around = tuple[For | When, ...]
FIX = "give the operand a layout whose parts the same units hold"


def check(layout: Layout, findings: Findings) -> None:
    """Judge every issue that has an operand in registers."""
    for issue, around in _issues(layout.func.body, ()):
        if issue.instr == TILED or "atom" in issue.attrs:
            continue  # its contract says who holds what
        _Judge(layout, findings, layout.sites[issue], issue, around).run()


def _issues(body: Iterable[Stmt], around: Around) -> Iterator[tuple[Issue, Around]]:
    for stmt in body:
        if isinstance(stmt, Issue):
            yield stmt, around
        elif isinstance(stmt, (For, When)):
            yield from _issues(stmt.body, (*around, stmt))
        elif isinstance(stmt, With):
            yield from _issues(stmt.body, around)


def shares(view: View) -> Shares:
    """Who holds the elements of a view in registers; an axis of which each unit has all of
    the view, as it is its own part, is left out."""
    out: dict[Axis, Dim] = {}
    for d in view.buffer.type.digits:
        if d.axis.extent > 1:
            at = mod(floordiv(view.index[d.dim], d.inner), d.axis.extent)
            if not (isinstance(at, Expr) and symbols(at) and _is_coordinate(at, d.axis)):
                out[d.axis] = at
    return out


def _is_coordinate(at: Expr, axis: Axis) -> bool:
    (mono, coef), *more = at.terms
    sym = mono[0] if len(mono) == 1 else None
    return not more and coef == 1 and isinstance(sym, Coord) and sym.axis == axis


class _Judge:
    def __init__(self, layout: Layout, findings: Findings, site: Site, issue: Issue,
                 around: Around) -> None:  # fmt: skip
        self.layout, self.findings, self.site = layout, findings, site
        self.issue, self.around = issue, around
        self.target = layout.func.target
        self.level = self.target.levels[-1]
        at = site.mesh.at(self.level)
        sizes = {t.level: t.size for t in layout.func.topologies}
        every = site.mesh.units(self.level) if at else range(sizes.get(self.level, 1))
        self.units = site.threads if self.level == UNIT else tuple(every)

    def run(self) -> None:
        issue = self.issue
        held = [r for r in issue.reads if isinstance(r, View) and r.storage == "rmem"]
        for write in issue.writes:
            if write.storage != "rmem":
                if held:
                    self._stored(held[0], write)
                    self._partial(held[0], frozenset(), write)
                    for other in held[1:]:
                        self._reads(other, _named(other, held[0]), held[0])
                continue
            combines = issue.attrs.get("op") == "combine"
            over = frozenset[Axis](issue.attrs.get("over", ()) if combines else ())
            split = sorted(a.name for a in over & set(shares(write)))
            if split and issue.attrs.get("scope") != "cluster":
                self._found(f"{write.buffer.name} is split over {' '.join(split)}, along which "
                            "it is combined: a unit has terms of its own part only")  # fmt: skip
            for read in held:
                self._reduced(read, write, over)

    def _found(self, missing: str) -> None:
        self.findings.add("not-held", self.site.place, None, missing, FIX)

    def _undecided(self, view: View) -> None:
        self.findings.note(f'undecided buffer={view.buffer.name} property="held by who uses it"')

    # What is read

    def _reduced(self, read: View, write: View, over: frozenset[Axis]) -> None:
        """One operand in registers of what is made in registers."""
        axes = self.issue.attrs.get("axes") if self.issue.instr == "reduce" else None
        if axes is None or self.issue.attrs.get("op") == "combine":
            self._reads(read, _named(read, write), write)
            self._partial(read, over, write)
            return
        gone = {read.vars[a % len(read.shape)] for a in axes}
        terms = {a for a, at in shares(read).items() if _symbols(at) & gone}
        kept = [v for v in read.vars if v not in gone]
        left = [v for v, e in zip(write.vars, write.shape, strict=True)
                if len(write.vars) == len(kept) or e != 1]  # fmt: skip
        if len(write.vars) == len(read.vars):  # gone axes are left with extent 1
            kept, left = list(read.vars), list(write.vars)
        if len(left) != len(kept):
            self._undecided(read)
            return
        names: dict[Sym, Dim] = {v: w.expr() for v, w in zip(kept, left, strict=True)}
        self._reads(read, names, write, terms)
        lost = terms - _partial(write)
        if lost:
            self._found(f"{write.buffer.name} is called whole, but each unit along {_words(lost)} "
                        f"has the terms that it holds of {read.buffer.name} only")  # fmt: skip
        self._partial(read, over, write)

    def _partial(self, read: View, over: frozenset[Axis], write: View) -> None:
        """Terms stay terms until they are combined; only terms are combined."""
        terms = _partial(read)
        whole = over - terms if read.buffer.layout is not None else frozenset()
        whole = frozenset(a for a in whole if a.extent > 1)
        if whole and self.issue.attrs.get("op") == "combine":
            self._found(f"{read.buffer.name} is combined over {_words(whole)}, where all hold "
                        "the same")  # fmt: skip
        left = terms - over
        if write.storage == "rmem":
            left -= _partial(write)
        elif write.storage != "gmem":  # each block has a memory of its own
            left = frozenset(a for a in left if a.level == self.level)
        if left:
            self._found(f"{write.buffer.name} gets of {read.buffer.name} only the terms that one "
                        f"unit along {_words(left)} has")  # fmt: skip

    def _reads(self, read: View, names: Mapping[Sym, Dim] | None, master: View,
               without: set[Axis] | frozenset[Axis] = frozenset()) -> None:  # fmt: skip
        """Who holds an element of ``master`` holds the element of ``read`` that meets it;
        ``names`` says which that is."""
        if names is None:
            self._undecided(read)
            return
        theirs = shares(master)
        mine = {a: substitute(at, names) for a, at in shares(read).items() if a not in without}
        open_ = {a: at for a, at in mine.items() if a not in theirs or theirs[a] != at}
        if not open_:
            return
        vars_ = {v: e for v, e in zip(master.vars, master.shape, strict=True)}
        used = {s for at in (*open_.values(), *theirs.values()) for s in _symbols(at)}
        if any(s not in vars_ for s in used) or prod(vars_[s] for s in used) > MOST:  # type: ignore[index]
            self._undecided(read)
            return
        meet: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
        for env in _environments({s: vars_[s] for s in used}):  # type: ignore[index]
            key = tuple(evaluate(at, env) for at in theirs.values())
            meet.setdefault(key, set()).add(tuple(evaluate(at, env) for at in open_.values()))
        for mine_at, their_at in self._coordinates(tuple(open_), tuple(theirs)):
            if any(at != mine_at for at in meet.get(their_at, ())):
                names_ = _words(open_)
                self._found(f"{read.buffer.name} is split over {names_}, and units need elements "
                            f"of it, for {master.buffer.name}, that others hold")  # fmt: skip
                return

    def _coordinates(self, one: tuple[Axis, ...], two: tuple[Axis, ...]
                     ) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:  # fmt: skip
        """Coordinates of each participant along two lists of axes."""
        axes = {*one, *two}
        inner = {tuple(coordinate(a, t) for a in (*one, *two) if a.level == self.level)
                 for t in self.units}  # fmt: skip
        outer = [a for a in axes if a.level != self.level]
        blocks = {tuple(coordinate(a, b.get(a.level, 0)) for a in outer)
                  for b in self.layout.blocks if self.layout.inside(self.site.mesh, b)}  # fmt: skip
        out: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
        for threads, block in cartesian(inner, blocks):
            at = dict(zip(outer, block, strict=True))
            here = iter(threads)
            every = [next(here) if a.level == self.level else at[a] for a in (*one, *two)]
            out.add((tuple(every[: len(one)]), tuple(every[len(one) :])))
        return out

    # What is stored

    def _stored(self, read: View, write: View) -> None:
        """All elements of a window in memory are stored, each in every copy of that memory."""
        split = shares(read)
        inner = {a: at for a, at in split.items() if a.level == self.level}
        if inner and not self._all_take_part(read, inner):
            self._found(f"not all units that hold parts of {read.buffer.name} store theirs to "
                        f"{write.buffer.name}")  # fmt: skip
        names = _named(write, read)
        for axis, at in split.items():
            if axis.level == self.level:
                continue
            if self.target.storages[write.storage].level is not None:
                if names is None or not self._everywhere(read, write, names, axis, at):
                    self._found(f"each unit along {axis.name} holds a part of {read.buffer.name} "
                                f"only, and has a {write.storage} of its own")  # fmt: skip
            elif axis in self._moved(write):
                self._found(f"each unit along {axis.name} stores to a place of its own, but holds "
                            f"a part of {read.buffer.name} only")  # fmt: skip
            elif self._guarded(axis):
                self._found(f"not all units along {axis.name} store their parts of "
                            f"{read.buffer.name}")  # fmt: skip

    def _all_take_part(self, read: View, inner: Shares) -> bool:
        present = {tuple(coordinate(a, t) for a in inner) for t in self.units}
        if len(present) == prod(a.extent for a in inner):
            return True
        vars_ = {v: e for v, e in zip(read.vars, read.shape, strict=True)}
        used = {s for at in inner.values() for s in _symbols(at)}
        if any(s not in vars_ for s in used) or prod(vars_[s] for s in used) > MOST:  # type: ignore[index]
            self._undecided(read)
            return True
        return all(tuple(evaluate(at, env) for at in inner.values()) in present
                   for env in _environments({s: vars_[s] for s in used}))  # type: ignore[index]  # fmt: skip

    def _everywhere(self, read: View, write: View, names: Mapping[Sym, Dim], axis: Axis, at: Dim
                    ) -> bool:  # fmt: skip
        """Whichever part of the source a unit along ``axis`` has, it stores to every place."""
        vars_ = {v: e for v, e in zip(read.vars, read.shape, strict=True)}
        places = [substitute(x, names) for x in write.index]
        places = [x for x in places if _symbols(x) & _symbols(at)]
        used = {s for x in (*places, at) for s in _symbols(x) if s in vars_}
        if any(s not in vars_ for s in _symbols(at)) or prod(vars_[s] for s in used) > MOST:  # type: ignore[index]
            self._undecided(read)
            return True
        others = {s: 0 for x in places for s in _symbols(x) if s not in vars_}
        by: dict[tuple[int, ...], set[int]] = {}
        for env in _environments({s: vars_[s] for s in used}):  # type: ignore[index]
            here = {**others, **env}
            place = tuple(evaluate(x, here) for x in places)
            by.setdefault(place, set()).add(evaluate(at, here))
        return all(len(parts) == axis.extent for parts in by.values())

    def _moved(self, write: View) -> set[Axis | None]:
        """Axes on which the place of a window depends."""
        moved = {s for x in (*write.index, write.slot) for s in _symbols(x)}
        for stmt in reversed(self.around):
            if isinstance(stmt, For) and stmt.var in moved:
                moved |= {s for x in (stmt.start, stmt.step) for s in _symbols(x)}
        return {s.axis for s in moved if isinstance(s, Coord)}

    def _guarded(self, axis: Axis) -> bool:
        """Some units along ``axis`` do not come here."""
        tests = (s.test for s in self.around if isinstance(s, When))
        if any(isinstance(s, Coord) and s.axis == axis for t in tests for s in _symbols(t)):
            return True
        at = {coordinate(axis, b.get(axis.level, 0)) for b in self.layout.blocks
              if self.layout.inside(self.site.mesh, b)}  # fmt: skip
        return len(at) < axis.extent


def _partial(view: View) -> frozenset[Axis]:
    layout = view.buffer.layout
    return frozenset() if layout is None else frozenset(a for a, _ in layout.partial)


def _words(axes: Iterable[Axis]) -> str:
    return " ".join(sorted(a.name for a in axes))


def _symbols(x: Dim) -> frozenset[Sym]:
    return frozenset(symbols(x)) if isinstance(x, Expr) else frozenset()


def _named(view: View, other: View) -> Mapping[Sym, Dim] | None:
    """The coordinates in ``view`` of the element that meets element ``vars`` of ``other``."""
    if view.shape == other.shape:
        return {v: w.expr() for v, w in zip(view.vars, other.vars, strict=True)}
    if prod(view.shape) != prod(other.shape):
        return None
    number: Dim = 0
    for w, extent in zip(other.vars, other.shape, strict=True):
        number = number * extent + w.expr()
    out: dict[Sym, Dim] = {}
    for v, extent in reversed([*zip(view.vars, view.shape, strict=True)]):
        out[v] = mod(number, extent)
        number = floordiv(number, extent)
    return out


def _environments(extents: Mapping[Sym, int]) -> Iterator[dict[Sym, int]]:
    names = tuple(extents)
    for values in cartesian(*(range(e) for e in extents.values())):
        yield dict(zip(names, values, strict=True))


__all__ = ["check", "shares"]
