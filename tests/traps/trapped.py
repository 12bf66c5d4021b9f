"""Asking of a small program: is it lowered right, or refused; is a defect found by both."""

import textwrap

import torch

from tilefoundry.diag import Refusal
from tilefoundry.evaluate import evaluate
from tilefoundry.interpret.run import run, run_program
from tilefoundry.ir.expr import bounds
from tilefoundry.lang.load import load_source
from tilefoundry.lower import lower
from tilefoundry.lower.finalize import finalize
from tilefoundry.ops.base import torch_dtype
from tilefoundry.tir.program import Issue, Sync, walk
from tilefoundry.verify import verify

HEAD = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

{consts}

@module(
    entry="f",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=({levels}),
)
class Program:
"""
POLICIES = ("round-robin", "lagging-engines", "reverse")


def program(folder, params, body, thread=96, cta=1, consts="", cluster=None, more="",
            before=""):  # fmt: skip
    """A module with one function ``f`` of ``params``, whose body is inside meshes of
    ``cta`` (axis ``c``) and ``thread`` (``warp``, ``lane``), with ``before`` in front."""
    scopes = (
        f'with Mesh(("cta",), layout=({cta},), names=("c",)) as cta:\n'
        f'    with Mesh(("thread",), layout=({thread // 32}, 32), names=("warp", "lane")) as t:\n'
    )
    inner = textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8)
    levels = [f'Topology("cta", {cta})', f'Topology("thread", {thread})']
    if cluster:
        levels.insert(0, f'Topology("cluster", {cluster})')
    head = textwrap.dedent(more).strip("\n") + "\n" if more else ""
    scopes = textwrap.dedent(before) + scopes
    func = f"{head}@func\ndef f({params}):\n" + textwrap.indent(scopes + inner, "    ")
    text = HEAD.format(consts=textwrap.dedent(consts), levels=", ".join(levels))
    path = folder / "program.py"
    path.write_text(text + textwrap.indent(func, "    ") + "\n", encoding="utf-8")
    return load_source(str(path), None, {})


def draw(type, seed=0):
    """Whole numbers from -4 to 4: sums and products of a few are exact in any order."""
    made = torch.Generator().manual_seed(seed)
    shape = tuple(bounds(e)[1] for e in type.shape)
    return torch.randint(-4, 5, shape, generator=made).to(torch_dtype(type.dtype))


def right(loaded, policies=POLICIES, exact=True, made=None):
    """The lowered program: the verifier accepts it, and executed under every policy it gives
    what the program means. Returns it; ``made`` is it where it is lowered already."""
    made = made or finalize(loaded)[0]
    func = loaded.module.funcs[loaded.func]
    given = {p.name: draw(p.tensor, n) for n, p in enumerate(func.params)}
    wanted = evaluate(loaded.module, loaded.func, [*given.values()])
    for policy in policies:
        found = run_program(made, given, policy=policy)
        assert [str(r) for r in found.reports] == [], policy
        for got, want in zip(found.outputs, wanted, strict=True):
            if exact:
                assert torch.equal(got, want), policy
            else:
                torch.testing.assert_close(got.double(), want.double(), rtol=2**-7, atol=1e-6)
    return made


def refused(call, *args):
    """The code of the refusal and what it says."""
    try:
        call(*args)
    except Refusal as refusal:
        return refusal.diags[0].code, refusal.diags[0].text()
    return "accepted", ""


def kernel(made):
    """The only kernel of a lowered program."""
    (func,) = made.kernels.values()
    return func


def lowered(loaded):
    return kernel(lower(loaded.module, loaded.func))


def syncs(func, *kinds):
    return [s for s, _ in walk(func.body) if isinstance(s, Sync) and s.kind in kinds]


def issues(func, *names):
    return [s for s, _ in walk(func.body) if isinstance(s, Issue) and s.instr in names]


def families(func):
    return {f.code for f in verify(func)}


def seen(func, policies=("random", "lagging-engines", "round-robin", "reverse")):
    """Kinds of what executions report, until one reports."""
    given = [draw(p, n) for n, p in enumerate(p for p in func.params if p.role == "in")]
    for policy in policies:
        found = run(func, given, policy=policy)
        if found.reports:
            return {r.kind for r in found.reports}
    return set()
