"""What CTAs of a cluster combine from each other's shared memory."""

from __future__ import annotations

from tilefoundry.targets.cuda.emit.index import At, each
from tilefoundry.targets.cuda.emit.kernel import Kernel
from tilefoundry.targets.cuda.emit.memory import Access
from tilefoundry.targets.cuda.emit.operands import assign
from tilefoundry.targets.cuda.emit.text import C_TYPES, CUDA, converted, wide
from tilefoundry.tir.program import Issue, View, reach


def combine(k: Kernel, issue: Issue) -> None:
    """Each thread adds up the elements that it holds of the result, CTA by CTA, in the widest
    accesses that the terms' layout allows."""
    (source,) = (r for r in issue.reads if isinstance(r, View))
    write = issue.writes[0]
    kind = str(issue.attrs.get("kind", "sum"))
    kind = "max" if kind == "abs_max" else kind
    have = CUDA.accumulator(kind, source.dtype, write.dtype)
    domain = k.held(write)
    word, count = C_TYPES[have], domain.size
    terms = k.out.name("terms")
    k.out.line(f"{word} {terms}[{count}];")
    for n in range(len(k.ranks(reach(issue))[1])):
        access = Access(k, source, domain, memory=_peer(k, issue, n))
        _add(k, access, source, kind, have, terms, count, start=n == 0)
    assign(k, write, domain, lambda at, turns: (f"{terms}[{at.of(turns)}]", have))


def memory_of(k: Kernel, issue: Issue) -> str:
    """A pointer to the shared memory that an issue reads: the CTA's own, or a peer's."""
    return _peer(k, issue, issue.attrs["peer"]) if "peer" in issue.attrs else "smem"


def _peer(k: Kernel, issue: Issue, number: int) -> str:
    """A pointer to the shared memory of one of the CTAs that an issue reaches."""
    first, steps = k.ranks(reach(issue))
    step = steps[number]
    rank = f"{first} + {step}" if first and step else first or str(step)
    peer = k.out.name("peer")
    k.out.line(f"const char *{peer} = tf_peer(smem, {rank});")
    return peer


def _add(
    k: Kernel, access: Access, source: View, kind: str, have: str, terms: str, count: int,
    start: bool,
) -> None:  # fmt: skip
    """The terms of one CTA, to those before it."""

    def one(at: At, turns: range, text: str) -> None:
        mine = f"{terms}[{at.of(turns)}]"
        k.out.line(f"{mine} = {text if start else CUDA.joined(kind, mine, text)};")

    plain = source.dtype.bits == 32 and wide(source.dtype) == have and have in ("f32", "i32")
    width = access.width(range(count), 1) if plain else 0
    if width <= 4:
        each(k.out, count, lambda at: one(
            at, range(count), converted(access.wide(at, range(count)), wide(source.dtype), have)
        ))  # fmt: skip
        return
    run = width // 4
    turns = range(0, count, run)
    got = k.out.name("got")

    def several(at: At) -> None:
        k.out.line(f"{C_TYPES[have]} {got}[{run}];")
        k.out.line(f"tf_load<{width}>({got}, {access.pointer(at, turns)});")
        for j in range(run):
            one(at, range(j, count, run), f"{got}[{j}]")

    each(k.out, len(turns), several)
