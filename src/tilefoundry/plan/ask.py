"""The questions of the command: the plans of a program, and the program with one in place."""

from __future__ import annotations

from collections.abc import Mapping

from tilefoundry.diag import refuse
from tilefoundry.ir.program import Func
from tilefoundry.lang.load import Loaded
from tilefoundry.plan.check import written
from tilefoundry.plan.report import Planned, planned
from tilefoundry.plan.search import Found, search
from tilefoundry.plan.site import Other, Site, find
from tilefoundry.plan.source import Unwritable
from tilefoundry.plan.write import Writer
from tilefoundry.targets.target import Target

DEFAULT_BINDING = "compute"


def ask(loaded: Loaded, consts: Mapping[str, object], best: int) -> list[Planned | Other]:
    """The plans of every loop of what ``loaded`` names, the ``best`` variants with text.

    Refuses a program without a loop that loads tiles and multiplies them (``plan-no-loop``),
    and one for none of whose loops a plan is feasible (``plan-infeasible``).
    """
    target, sites = _sites(loaded)
    answers: list[Planned | Other] = []
    for site in sites:
        if isinstance(site, Other):
            answers.append(site)
            continue
        writer, found = _search(loaded, site, target)
        if not found.plans:
            answers.append(Other(site.loop, "; ".join(_why(found)), site.product.span))
            continue
        answers.append(planned(found, writer, loaded, consts, best, target))
    if all(isinstance(a, Other) for a in answers):
        _refuse(answers)
    return answers


def put(loaded: Loaded, consts: Mapping[str, object], number: int) -> str:
    """The program with plan ``number`` of its only planned loop in place."""
    target, sites = _sites(loaded)
    ready = [s for s in sites if isinstance(s, Site)]
    if len(ready) != 1:
        if not ready:
            _refuse([s for s in sites if isinstance(s, Other)])
        lines = " ".join(str(s.loop.span.line) for s in ready if s.loop.span)
        refuse("plan-which", ready[0].loop.span, what=f"{len(ready)} loops, on lines {lines}",
               number=number, fix="put the text of a plan in place by hand")  # fmt: skip
    (site,) = ready
    writer, found = _search(loaded, site, target)
    if not found.plans:
        _refuse([Other(site.loop, "; ".join(_why(found)), site.product.span)])
    if number > len(found.plans):
        refuse("plan-which", site.loop.span, what=f"{len(found.plans)} plans", number=number,
               fix=f"ask for one of 1 to {len(found.plans)}")  # fmt: skip
    try:
        if isinstance(writer, Unwritable):
            raise writer
        return written(writer, found.plans[number - 1], loaded, consts).text
    except Unwritable as why:
        refuse("plan-unwritable", site.loop.span, number=number, why=why.why)


def _sites(loaded: Loaded) -> tuple[Target, list[Site | Other]]:
    module = loaded.module
    if module.target is None:
        refuse("candidates-no-target", module.span, module=module.name)
    target: Target = module.target.load()
    funcs: list[Func] = [module.funcs[loaded.func]] if loaded.func else list(module.funcs.values())
    sites = [site for func in funcs for site in find(func, target)]
    if not sites:
        refuse("plan-no-loop", module.span, module=module.name)
    return target, sites


def _search(loaded: Loaded, site: Site, target: Target) -> tuple[Writer | Unwritable, Found]:
    """The site's plans, and who writes them; without a writer the plans still stand."""
    writer: Writer | Unwritable
    try:
        writer = Writer(site, target)
        binding = writer.binding
    except Unwritable as why:
        writer, binding = why, DEFAULT_BINDING
    return writer, search(loaded.module, site, target, binding)


def _why(found: Found) -> list[str]:
    """Why nothing is feasible: the first clause of each instruction, then capacities."""
    words = [
        f"T.{path} {u.clause}: {u.got} does not match {u.expected}"
        for path, u in found.unmet.items()
    ]
    for why in sorted(found.refused):
        short = found.nearest.get(why)
        words.append(f"{why}: {short.words if short else 'not enough for any combination'}")
    return words or ["the target has no matrix instruction"]


def _refuse(answers: list[Planned | Other]) -> None:
    others = [a for a in answers if isinstance(a, Other)]
    first = others[0]
    notes = tuple(w for a in others for w in a.why.split("; "))
    refuse("plan-infeasible", first.at or first.loop.span, var=first.loop.var.name, notes=notes)
