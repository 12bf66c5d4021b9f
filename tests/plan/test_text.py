"""A plan's text in the program's place: it loads, computes the same, and lowers."""

import random

import pytest
import torch
from plan_programs import SMALL, small, tutorial

from tilefoundry.evaluate import evaluate
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize
from tilefoundry.ops.base import torch_dtype
from tilefoundry.plan.check import written
from tilefoundry.plan.report import answer_record
from tilefoundry.plan.write import Writer

REDUCED = {
    "grid.py": {"M": 256, "N": 512, "K": 192},
    "persistent.py": {"M": 256, "N": 512, "K": 192, "CTAS": 3},
    "optimal.py": {"M": 256, "N": 512, "K": 192, "CTAS": 3, "GROUP": 2},
}


def pasted(text, edits):
    """The edits put in place by hand: lines are replaced from the last to the first."""
    lines = text.split("\n")
    for edit in reversed(edits):
        lines[edit["first"] - 1 : edit["last"]] = edit["lines"]
    return "\n".join(lines)


def results(path, consts):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loaded = load_source(str(path), None, consts)
    types = [p.tensor for p in loaded.module.funcs[loaded.func].params]
    drawn = [torch.randn(t.shape).to(torch_dtype(t.dtype)) for t in types]
    (got,) = evaluate(loaded.module, loaded.func, drawn)
    return got.double(), drawn


def close(got, want, dtype):
    """Sums of 256 products in another order: a part in 2^-20 of the largest; and one rounding
    of the result, which may fall to the other side."""
    slack = {"bf16": 2**-7, "f16": 2**-10, "f32": 2**-20}[dtype]
    assert (got - want).abs().max() <= slack * want.abs().max()
    assert want.abs().max() > 1


@pytest.mark.parametrize("name", REDUCED)
def test_each_shown_plan_of_the_tutorial_computes_the_same(name, plans, tmp_path):
    source = tutorial(name)
    _, answers = plans(source, 4, name)
    (loop,) = answer_record(answers, False)["loops"]
    assert len(loop["shown"]) == 4
    want, _ = results(tmp_path / name, REDUCED[name])
    for plan in loop["shown"]:
        path = tmp_path / "planned.py"
        path.write_text(pasted(source, plan["edits"]), encoding="utf-8")
        got, _ = results(path, REDUCED[name])
        close(got, want, "bf16")


@pytest.mark.parametrize("form", SMALL)
def test_programs_written_otherwise(form, plans, tmp_path):
    """The best plan, the best that loads and multiplies by the same threads, and the best of
    every instruction."""
    loaded, (answer,) = plans(SMALL[form])
    first = {}
    for plan in answer.found.plans:
        first.setdefault(plan.roles, plan)
        first.setdefault(plan.compute.use.atom.path, plan)
        first.setdefault(plan.moves[0].instr.path, plan)
    assert {"cuda.sm90.Wgmma", "producer apart", "same threads"} <= first.keys()
    want, drawn = results(tmp_path / "program.py", {})
    writer = Writer(answer.found.site, answer.target)
    for plan in {id(p): p for p in first.values()}.values():
        text = written(writer, plan, loaded, {}).text
        path = tmp_path / "planned.py"
        path.write_text(text, encoding="utf-8")
        got, _ = results(path, {})
        out = load_source(str(path), None, {}).module.funcs["gemm"].result.dtype.name
        close(got, want, out)
        assert not torch.equal(got, torch.zeros_like(got)), drawn


def test_the_text_uses_the_author_s_names(plans):
    _, (answer,) = plans(tutorial("grid.py"), 6)
    for shown in answer.shown:
        lines = [line for edit in shown.text.edits for line in edit.lines]
        text = "\n".join(lines)
        assert "lhs = tf.schedule((a[m:m + BM, k], lhs_ring), op=T.copy_async_tensor())" in text
        assert "rhs = tf.schedule((b[k, n:n + BN], rhs_ring), op=T.copy_async_tensor())" in text
        assert 'lhs_ring = tf.empty(Tensor[(BM, BK), "bf16", ' in text
        assert 'acc = tf.zeros(Tensor[(BM, BN), "f32", (' in text
        assert 'topologies=(Topology("cta", GM * GN), Topology("thread", 384)),' in text
        assert "(m, n))" in lines[-1]


COMMENTED = """acc += tf.matmul(
                    a[m:m + BM,  # rows, "a" of them
                      k],
                    b[k, n:n + BN],  # columns
                    out_dtype='f32',
                )"""
INSERTED = """out = tf.insert_slice(
                out,
                tf.cast(acc, '{out}'),  # rounded once
                (m,  # first
                 n),
            )"""


def test_comments_between_the_words_are_left_out(plans):
    source = small(body=COMMENTED, store=INSERTED)
    source = source.replace("(M // BM) *", "(M // BM)  # rows\n        *")
    _, (answer,) = plans(source, 2)
    for shown in answer.shown:
        text = "\n".join(line for edit in shown.text.edits for line in edit.lines)
        assert "a[m:m + BM, k]" in text and "(m, n))" in text
        assert "(M // BM) * (N // BN)" in text and "#" not in text


def test_names_that_the_author_has_stay_the_author_s(plans):
    source = tutorial("grid.py").replace("cta", "compute").replace('"compute"', '"cta"')
    source = source.replace("GM, GN = M", "loader = threads = 1\nGM, GN = M")
    _, (answer,) = plans(source, 1)
    text = "\n".join(line for edit in answer.shown[0].text.edits for line in edit.lines)
    assert "as compute_2:" in text and "as threads_2:" in text and "as loader_2:" in text


@pytest.mark.parametrize("store", ["own storer", "loader", "consumers, registers", "consumers"])
def test_the_lowering_takes_what_the_plan_said(store, plans):
    """Bytes of shared memory and registers of each role, as finalize derives them."""
    loaded, (answer,) = plans(tutorial("persistent.py"), 1, "persistent.py")
    writer = Writer(answer.found.site, answer.target)
    done = set()
    for plan in answer.found.plans:
        form = plan.compute.use.params.get("form")
        if plan.store != store or form in done or plan.roles != "producer apart":
            continue
        done.add(form)
        text = written(writer, plan, loaded, {}).text
        program, _ = finalize(load_source("planned.py", None, {}, text))
        (kernel,) = program.kernels.values()
        saved = plan.bytes - kernel.shared_bytes
        assert saved == (16 if store == "consumers" else 0)  # no barriers to hand a tile over
        roles = {need: given for _, need, given in kernel.registers}
        assert roles[plan.registers.need] == plan.registers.consumer
        assert set(roles.values()) == {plan.registers.consumer, plan.registers.others}
    assert done == {"SS", "RS"}


def test_what_has_no_place_in_the_source_is_still_listed(plans):
    source = tutorial("grid.py")
    elsewhere = source.replace('(Topology("cta", GM * GN),)', "UNITS", 1)
    elsewhere = elsewhere.replace("@module", 'UNITS = (Topology("cta", GM * GN),)\n\n\n@module')
    both = source.replace("GM * GN),)", 'GM * GN), Topology("thread", 32))')
    both = both.replace('Mesh(("cta",), layout=(GM, GN), names=("bm", "bn"))',
                        'Mesh(("cta", "thread"), layout=((GM, GN), (32,)), '
                        'names=(("bm", "bn"), ("t",)))')  # fmt: skip
    for text, why in ((elsewhere, "not written as a tuple"), (both, "arranges cta and thread")):
        _, (answer,) = plans(text, 2)
        assert [why in s.text.why for s in answer.shown] == [True, True]


@pytest.mark.parametrize("seed", range(6))
def test_plans_of_tiles_drawn_at_random(seed, plans):
    """Every text loads, and what is lowered takes no more than the plan said."""
    draw = random.Random(seed)
    m, n, k = draw.choice([48, 64, 128]), draw.choice([24, 64, 96, 160]), draw.choice([32, 64])
    forms = {
        ("(M, K)", "(K, N)"): "acc += tf.matmul(a[m:m + BM, k], b[k, n:n + BN], 'f32')",
        ("(M, K)", "(N, K)"): "acc += tf.matmul(a[m:m + BM, k], b[n:n + BN, k], 'f32', 'MK', 'NK')",
        ("(K, M)", "(K, N)"): "acc += tf.matmul(a[k, m:m + BM], b[k, n:n + BN], 'f32', 'KM')",
    }
    (a, b), body = draw.choice(list(forms.items()))
    dtype = draw.choice(["bf16", "f16", "fp8e4m3"])
    source = small(dtype, f"{m}, {n}, {k}", draw.choice(["bf16", "f32"]), a, b, body)
    source = source.replace("256, 256, 256", f"{2 * m}, {2 * n}, {3 * k}")
    loaded, (answer,) = plans(source, 1)
    writer = Writer(answer.found.site, answer.target)
    for number, plan in enumerate(draw.sample(answer.found.plans, 4)):
        text = written(writer, plan, loaded, {}).text
        if number == 0:
            program, _ = finalize(load_source("planned.py", None, {}, text))
            (kernel,) = program.kernels.values()
            assert kernel.shared_bytes <= plan.bytes
            assert max(need for _, need, _ in kernel.registers) == plan.registers.need
