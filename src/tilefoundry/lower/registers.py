"""Registers of each role, estimated; and their re-partition among warpgroups.

The estimate of a thread is the largest sum of the register tiles it holds at once, plus
``OVERHEAD`` for addresses, loop variables and temporaries. Where a role needs more than an
even share of the register file, roles that need little give theirs up (PTX ISA, setmaxnreg).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate

from tilefoundry.ir.mesh import Axis, Mesh, arrange, enter
from tilefoundry.targets.target import RegisterFile
from tilefoundry.tir.program import Buffer, For, PrimFunc, Stmt, Sync, When, With, views, walk

OVERHEAD = 24
SPARE = 16
"""What a role keeps beyond its estimate when it gives others the rest."""


@dataclass(frozen=True)
class Role:
    """Threads that execute the same statements, and what each holds at most."""

    units: tuple[int, ...]
    registers: int


def estimate(func: PrimFunc) -> tuple[Role, ...]:
    """The roles of a kernel, in order of their first thread."""
    level = func.target.levels[-1]
    threads = next((t.size for t in func.topologies if t.level == level), 1)
    done: dict[frozenset[int], set[int]] = {}
    """What each set of threads executes."""
    sets: dict[tuple[Axis, ...], frozenset[int]] = {(): frozenset(range(threads))}
    for n, (stmt, mesh) in enumerate(walk(func.body)):
        if isinstance(stmt, (With, For, When)):
            continue
        axes = mesh.at(level)
        if axes not in sets:
            sets[axes] = frozenset(mesh.units(level))
        done.setdefault(sets[axes], set()).add(n)
    roles: dict[tuple[frozenset[int], ...], list[int]] = {}
    for unit in range(threads):
        roles.setdefault(tuple(s for s in done if unit in s), []).append(unit)
    return tuple(
        Role(tuple(units), _peak(func, frozenset().union(*(done[s] for s in within))) + OVERHEAD)
        for within, units in roles.items()
        if within
    )


def _peak(func: PrimFunc, stmts: frozenset[int]) -> int:
    """The most registers that the tiles of one thread take at once."""
    level = func.target.levels[-1]
    spans: dict[Buffer, list[int]] = {}
    at = -1

    def visit(body: tuple[Stmt, ...]) -> None:
        nonlocal at
        for stmt in body:
            at += 1
            start = at
            if isinstance(stmt, (With, For, When)):
                known = set(spans)
                visit(stmt.body)
                if isinstance(stmt, For):  # a tile from before the loop lives through it
                    for buffer in known:
                        if spans[buffer][1] > start:
                            spans[buffer][1] = at
            elif start in stmts:
                for view in views(stmt):
                    if func.target.storages[view.storage].level == level:
                        spans.setdefault(view.buffer, [start, start])[1] = start

    visit(func.body)
    change: dict[int, int] = {}
    for buffer, (first, last) in spans.items():
        size = _words(buffer)
        change[first] = change.get(first, 0) + size
        change[last + 1] = change.get(last + 1, 0) - size
    return max(accumulate(change[n] for n in sorted(change)), default=0)


def _words(buffer: Buffer) -> int:
    """32-bit registers that one thread's part takes, small elements packed."""
    bits = buffer.type.bits(buffer.type.local_shape)
    assert isinstance(bits, int)
    return -(-bits // 32)


def divide(func: PrimFunc, roles: tuple[Role, ...]) -> PrimFunc:
    """``func`` with the registers of its ``roles`` declared and, where an even share is too
    small for one, moved between whole warpgroups. Lanes of a vector have none of their own:
    what vectors hold is in the memory analysis."""
    file = func.target.registers
    if file is None:
        return func
    level = func.target.levels[-1]
    threads = next((t.size for t in func.topologies if t.level == level), 1)
    group, given = file.group, dict[int, int]()
    if any(r.registers > file.even(threads) for r in roles) and threads % group == 0:
        given = _moved(file, roles, threads)
    table = tuple(
        (_span(role), role.registers, given.get(role.units[0] // group, 0)) for role in roles
    )
    out = replace(func, registers=table)
    return _declared(out, given, group, threads) if given else out


def _moved(file: RegisterFile, roles: tuple[Role, ...], threads: int) -> dict[int, int]:
    """Registers per warpgroup: little ones give up what they do not need, the others share
    the rest evenly; empty where nothing is gained."""
    step, least, groups = file.step, file.least, threads // file.group
    if least is None or groups == 1:
        return {}
    need = [0] * groups
    for role in roles:
        for unit in role.units:
            need[unit // file.group] = max(need[unit // file.group], role.registers)
    even = file.even(threads)
    kept = [max(n, least) + SPARE if n else least for n in need]
    small = {g: -(-n // step) * step for g, n in enumerate(kept)}
    small = {g: n for g, n in small.items() if n < even and need[g] <= even}
    rest = [g for g in range(groups) if g not in small]
    pool = even * groups - sum(small.values())
    share = min(file.most, pool // len(rest)) // step * step if rest else 0
    if share <= even:
        return {}
    return {g: small.get(g, share) for g in range(groups)}


def _span(role: Role) -> str:
    units = role.units
    runs = "" if units == tuple(range(units[0], units[-1] + 1)) else " (not all)"
    return f"{units[0]}:{units[-1] + 1}{runs}"


def _declared(func: PrimFunc, given: dict[int, int], each: int, threads: int) -> PrimFunc:
    """setmaxnreg of each run of warpgroups with one number, where the roles part."""
    runs: list[tuple[int, int, int]] = []
    for group, count in sorted(given.items()):
        if runs and runs[-1][2] == count:
            runs[-1] = (runs[-1][0], group + 1, count)
        else:
            runs.append((group, group + 1, count))
    level = func.target.levels[-1]
    done = False

    def visit(body: tuple[Stmt, ...], around: Mesh) -> tuple[Stmt, ...]:
        nonlocal done
        out: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, With) and not done:
                if stmt.mesh.count(level) == threads and stmt.mesh.at(level):
                    done = True
                    stmt = replace(stmt, body=_after_setup(stmt.body, stmt.mesh))
                else:
                    stmt = replace(stmt, body=visit(stmt.body, stmt.mesh))
            out.append(stmt)
        return tuple(out)

    def _after_setup(body: tuple[Stmt, ...], mesh: Mesh) -> tuple[Stmt, ...]:
        cut = next(
            (n + 1 for n, s in enumerate(body) if isinstance(s, Sync) and s.kind == "barrier"), 0
        )
        made: list[Stmt] = []
        for lo, hi, count in runs:
            axes = arrange(level, (hi - lo, each), ("warpgroup", "lane"), None, lo * each)
            own = Mesh(axes, mesh.sizes)
            inside = enter(mesh, own, func.target.levels)
            sync = Sync("registers", count=count, why=f"warpgroups {lo}:{hi}")
            made.append(With(own, inside, "", (sync,)))
        return (*body[:cut], *made, *body[cut:])

    return replace(func, body=visit(func.body, Mesh()))
