"""The answer of ``schedule plan``: plans in lines that can be grepped, and as a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tilefoundry.lang.load import Loaded
from tilefoundry.plan.check import Written, written
from tilefoundry.plan.resources import slot_bytes
from tilefoundry.plan.search import APART, DIRECT, SAME, Found, Plan
from tilefoundry.plan.site import Other
from tilefoundry.plan.source import Unwritable
from tilefoundry.plan.write import Writer
from tilefoundry.quantity import bytes_text, time_text
from tilefoundry.targets.target import Target

FEASIBLE = (
    "feasible under the contracts and capacities, not claimed optimal; bounds take the peak "
    "rates that the target's documents state, real times are longer"
)
COUNTED = (
    "bound=step is one step of the loop on one processor, bound=loop all its executions; what "
    "comes before and after the loop (first fill, store) is not in them"
)


@dataclass(frozen=True)
class Shown:
    """One plan of the answer: its number in the order of all, its text or why it has none."""

    number: int
    plan: Plan
    text: Written | Unwritable | None


@dataclass
class Planned:
    """The answer for one loop."""

    found: Found
    variants: int
    shown: list[Shown]
    target: Target


def variant(plan: Plan) -> tuple[Any, ...]:
    """What tells plans apart at first sight: all but the number of slots and the copies."""
    use = plan.compute.use
    return use.text(), plan.compute.consumers.grid, plan.roles, plan.store


def chosen(plans: Sequence[Plan], count: int) -> tuple[int, list[tuple[int, Plan]]]:
    """How many variants there are, and the best plan of each of the first ``count``."""
    first: dict[tuple[Any, ...], tuple[int, Plan]] = {}
    for number, plan in enumerate(plans, 1):
        first.setdefault(variant(plan), (number, plan))
    return len(first), list(first.values())[:count]


def planned(
    found: Found, writer: Writer | Unwritable, loaded: Loaded, consts: Mapping[str, object],
    count: int, target: Target,
) -> Planned:  # fmt: skip
    """The best ``count`` variants with their text, each put in place and loaded."""
    variants, best = chosen(found.plans, count)
    shown: list[Shown] = []
    for number, plan in best:
        text: Written | Unwritable
        try:
            text = writer if isinstance(writer, Unwritable) else (
                written(writer, plan, loaded, consts)
            )  # fmt: skip
        except Unwritable as why:
            text = why
        shown.append(Shown(number, plan, text))
    return Planned(found, variants, shown, target)


# ---- text


def answer_text(answers: Sequence[Planned | Other], file: str, every: bool) -> str:
    """The whole answer: one line for each plan that is shown (``every``: for each that there
    is), then what each shown plan is and its text."""
    lines = [f"# plan loops={len(answers)} precision=lower_bound", f"# note {FEASIBLE}"]
    lines.append(f"# note {COUNTED}")
    for answer in answers:
        if isinstance(answer, Other):
            line = answer.loop.span.line if answer.loop.span else 0
            at = f" line={answer.at.line}" if answer.at else ""
            lines.append(f"# loop var={answer.loop.var.name} line={line} plans=0")
            lines.append(f"# unplanned{at} why={answer.why}")
        else:
            lines += _loop_lines(answer)
            heads = [(s.number, s.plan) for s in answer.shown]
            if every:
                heads = [*enumerate(answer.found.plans, 1)]
            lines += [f"# {n} {_bound(p)} {_short(p)}" for n, p in heads]
            for shown in answer.shown:
                lines += _plan_lines(shown, answer, file)
    return "\n".join(lines)


def _loop_lines(answer: Planned) -> list[str]:
    found = answer.found
    site, load = found.site, found.load
    line = site.loop.span.line if site.loop.span else 0
    steps = load.steps if load.steps is not None else "unknown"
    lines = [
        f"# loop var={site.loop.var.name} line={line} func={site.func.name} steps={steps} "
        f"plans={len(found.plans)} variants={answer.variants} shown={len(answer.shown)} "
        "order=bound,bytes_in_flight,issues"
    ]
    if load.reason:
        lines.append(f"# unavailable loop bound: {load.reason}")
    lines += [f"# unavailable {why}" for why in found.rates.lacks]
    for why, count in sorted(found.refused.items()):
        short = found.nearest.get(why)
        more = f" nearest={short.words}" if short else ""
        lines.append(f"# infeasible combinations={count} for={why}{more}")
    lines += unmet_lines(found)
    return lines


def unmet_lines(found: Found) -> list[str]:
    """For each instruction without a legal use the first clause that is not met."""
    return [
        f"# refused T.{path} {u.clause}: {u.got} does not match {u.expected}"
        for path, u in found.unmet.items()
    ]


def _bound(plan: Plan) -> str:
    b = plan.bound
    step = time_text(b.step) if b.step is not None else "unavailable"
    total = time_text(b.total) if b.total is not None else "unavailable"
    return f"step={step} loop={total} limit={b.limit.replace(' ', '_').replace(',', '')}"


def _short(plan: Plan) -> str:
    use = plan.compute.use
    grid = "x".join(map(str, plan.compute.consumers.grid))
    form = use.params.get("form")
    atom = f"T.{use.atom.path}" + (f".{form}" if form else "")
    loads = ",".join(f"T.{m.instr.path}" for m in plan.moves)
    return (
        f"atom={atom} consumers={grid} loads={loads} slots={plan.slots} "
        f"roles={plan.roles.replace(' ', '_')} store={_store_word(plan)} "
        f"smem={bytes_text(plan.bytes)} {plan.registers.text()} threads={plan.units} "
        f"in_flight={bytes_text(plan.in_flight)}"
    )


def _store_word(plan: Plan) -> str:
    return plan.store.replace(", ", "_").replace(" ", "_")


def _plan_lines(shown: Shown, answer: Planned, file: str) -> list[str]:
    plan, target = shown.plan, answer.target
    use = plan.compute.use
    near = plan.moves[0].ring.type.storage
    unit = target.levels[-1]
    group = use.atom.execution_mesh.units
    rows, columns = plan.compute.consumers.grid
    lines = [
        f"plan {shown.number} {_bound(plan)}",
        f"  compute    T.{use.atom.path} {use.words()} repeat={plan.compute.fit.repeat}",
        f"  consumers  groups={rows * columns} each={group} rows={rows} columns={columns}",
    ]
    lines += [
        f"  load       {m.load.name} by=T.{m.instr.path} slots={plan.slots} "
        f"{m.plan.text()} completion={_completion(m)}"
        for m in plan.moves
    ]
    lines.append(f"  roles      {_roles(plan, unit)}")
    lines.append(f"  order      {_order(plan)}")
    lines.append(
        f"  takes      {near}={bytes_text(plan.bytes)} {_bytes_of(plan)} "
        f"{plan.registers.text()} launch={plan.registers.launch} {unit}s={plan.units} "
        f"resident={plan.resident} limited_by={plan.resident_limit} waves={plan.waves} "
        f"busy={_share(plan.busy)}"
    )
    lines.append(f"  in flight  {_flight(plan, target)}")
    others = _others(plan, answer.found)
    if others:
        lines.append(f"  also       {others}")
    if isinstance(shown.text, Unwritable):
        lines.append(f"  no text    {shown.text.why}")
    elif shown.text is not None:
        for edit in shown.text.edits:
            lines.append(f"  replace    {file}:{edit.first}-{edit.last}")
            lines += edit.lines
    return lines


def _share(part: Fraction | None) -> str:
    return "unknown" if part is None else f"{float(part):.1%}"


def _completion(move: Any) -> str:
    return str(move.instr.completion[0]).replace(" ", "_")


def _roles(plan: Plan, unit: str) -> str:
    if plan.roles == SAME:
        return f"all={plan.units} {unit}s load, multiply and store"
    lead = f"loader=1 of {plan.lead} {unit}s in front"
    store = {DIRECT: "consumers"}.get(plan.store, _store_word(plan))
    return f"{lead} consumers={plan.units - plan.lead} {unit}s store={store}"


def _order(plan: Plan) -> str:
    if plan.roles == APART:
        ahead = f"loads run up to {plan.slots} steps ahead of the product"
        if plan.slots == 1:
            ahead = "a load waits for the product of the step before"
    elif plan.slots > 1 and plan.compute.use.atom.proxy == "async":
        ahead = "loads of a step go under the product of the step before"
    else:
        ahead = "loads of a step, then its product"
    store = {
        "own storer": "; the store keeps neither loads nor products waiting, only the next staging",
        "loader": "; the loads of the next tile stand behind the store",
        "consumers": "; the next tile's product stands behind the issue of the store",
        DIRECT: "; the next tile's product stands behind the store",
    }[plan.store]
    return ahead + store


def _bytes_of(plan: Plan) -> str:
    rings = plan.slots * plan.stage
    words = f"(rings={bytes_text(rings)}"
    staged = 0
    if plan.staging is not None:
        staged = slot_bytes(plan.staging)
        words += f" staging={bytes_text(staged)}"
    return f"{words} barriers<={plan.bytes - rings - staged}B)"


def _flight(plan: Plan, target: Target) -> str:
    words = f"bytes={bytes_text(plan.in_flight)}/{target.processor.name}"
    if isinstance(plan.latency, str):
        return f"{words} needs=unavailable ({plan.latency})"
    rate, count = target.bandwidth(target.default_storage), target.processor.count
    if rate is None or rate.value is None or not count.value:
        return f"{words} needs=unavailable (no bandwidth of {target.default_storage} is stated)"
    need = plan.latency * Fraction(rate.value) / int(count.value)
    return (
        f"{words} needs={bytes_text(need)} (latency {time_text(plan.latency)} x "
        f"bandwidth of {target.default_storage})"
    )


def _others(plan: Plan, found: Found) -> str:
    """Slots and copies of the other plans of the variant."""
    same = variant(plan)
    mine = [p for p in found.plans if variant(p) == same]
    slots = sorted({p.slots for p in mine})
    copies = list(dict.fromkeys(m.instr.path for p in mine for m in p.moves))
    return (
        f"plans={len(mine) - 1} slots={slots[0]}..{slots[-1]} "
        f"copies={','.join(f'T.{c}' for c in copies)}"
        if len(mine) > 1
        else ""
    )


# ---- record


def answer_record(answers: Sequence[Planned | Other], every: bool) -> dict[str, Any]:
    """The same as a record; times in seconds, sizes in bytes."""
    return {
        "note": FEASIBLE,
        "counted": COUNTED,
        "loops": [_loop_record(a, every) for a in answers],
    }


def _loop_record(answer: Planned | Other, every: bool) -> dict[str, Any]:
    if isinstance(answer, Other):
        return {
            "var": answer.loop.var.name,
            "line": answer.loop.span.line if answer.loop.span else None,
            "plans": 0,
            "unplanned": answer.why,
        }
    found = answer.found
    out: dict[str, Any] = {
        "var": found.site.loop.var.name,
        "line": found.site.loop.span.line if found.site.loop.span else None,
        "func": found.site.func.name,
        "steps": found.load.steps,
        "plans": len(found.plans),
        "variants": answer.variants,
        "unavailable": [*found.rates.lacks, *([found.load.reason] if found.load.reason else [])],
        "infeasible": dict(sorted(found.refused.items())),
        "refused": unmet_lines(found),
        "shown": [_plan_record(s.number, s.plan, s.text) for s in answer.shown],
    }
    if every:
        out["all"] = [_plan_record(n, p, None) for n, p in enumerate(found.plans, 1)]
    return out


def _plan_record(number: int, plan: Plan, text: Written | Unwritable | None) -> dict[str, Any]:
    use, b = plan.compute.use, plan.bound
    record: dict[str, Any] = {
        "number": number,
        "instruction": f"T.{use.atom.path}",
        "parameters": dict(use.params),
        "repeat": list(plan.compute.fit.repeat),
        "groups": list(plan.compute.consumers.grid),
        "loads": {m.load.name: f"T.{m.instr.path}" for m in plan.moves},
        "slots": plan.slots,
        "roles": plan.roles,
        "store": plan.store,
        "shared_bytes": plan.bytes,
        "registers": plan.registers.need,
        "registers_given": plan.registers.consumer,
        "units": plan.units,
        "resident": plan.resident,
        "limited_by": plan.resident_limit,
        "waves": plan.waves,
        "busy": None if plan.busy is None else float(plan.busy),
        "in_flight_bytes": plan.in_flight,
        "latency_seconds": None if isinstance(plan.latency, str) else float(plan.latency),
        "step_seconds": float(b.step) if b.step is not None else None,
        "loop_seconds": float(b.total) if b.total is not None else None,
        "limit": b.limit,
    }
    if isinstance(text, Written):
        record["edits"] = [
            {"first": e.first, "last": e.last, "lines": list(e.lines)} for e in text.edits
        ]
    elif text is not None:
        record["no_text"] = text.why
    return record
