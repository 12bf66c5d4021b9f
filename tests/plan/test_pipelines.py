"""What plans there are, what they take and how long: by hand from the hardware's figures."""

from fractions import Fraction

import pytest
from plan_programs import small, tutorial

from tilefoundry.diag import Refusal
from tilefoundry.lang.load import load_source
from tilefoundry.lower.allocate import allocate
from tilefoundry.lower.func import lower_func
from tilefoundry.lower.registers import estimate
from tilefoundry.plan.check import written
from tilefoundry.plan.report import answer_record, answer_text
from tilefoundry.plan.write import Writer

KB = 1024
PEAK = Fraction(989_500_000_000_000, 132)  # flop/s of one SM, bf16 (datasheet, dense)
SHARED = 128 * 1_980_000_000  # bytes/s of one SM: 32 banks x 4 bytes, boost clock


def of(answer, **wanted):
    """The plans with these values."""

    def value(plan, key):
        form = plan.compute.use.params.get("form")
        special = {"form": form, "grid": plan.compute.consumers.grid,
                   "copy": plan.moves[0].instr.path}  # fmt: skip
        return special[key] if key in special else getattr(plan, key)

    return [p for p in answer.found.plans if all(value(p, k) == v for k, v in wanted.items())]


POST = {"form": "SS", "grid": (2, 1), "copy": "copy_async_tensor", "roles": "producer apart"}


def test_the_post_s_pipeline_is_among_them(plans):
    """132 persistent CTAs, 128 x 256 x 64, 3 slots, a staged result, a loader that stores."""
    _, (answer,) = plans(tutorial("persistent.py"))
    (plan,) = of(answer, **POST, store="loader", slots=3)
    assert plan.stage == (128 * 64 + 64 * 256) * 2 == 48 * KB
    # rings, the staged 128 x 256 bf16 tile, 3 full and 3 empty barriers, 2 of the staging
    assert plan.bytes == 3 * 48 * KB + 64 * KB + 8 * 8
    assert plan.units == 384 and plan.compute.fit.repeat == (2, 1, 4)
    # 128 f32 sums, 64 registers of bf16 pairs made of them, 24 for the rest
    assert plan.registers.need == 128 + 64 + 24
    # 384 threads of 168: 128 x 40 + 256 x 232 registers
    assert (plan.registers.others, plan.registers.consumer) == (40, 232)
    assert 128 * 40 + 256 * 232 == 384 * 168 <= 65536
    assert plan.resident == 1 and plan.waves == 1
    assert plan.in_flight == 144 * KB
    assert plan.bound.step == 2 * 128 * 256 * 64 / PEAK
    assert plan.bound.total == plan.bound.step * 80 * 33  # 5120 / 64 steps, ceil(4352 / 132)
    assert plan.bound.limit == "matrix"


@pytest.mark.parametrize(("store", "most"), [("loader", 3), ("consumers, registers", 4)])
def test_slots_end_where_shared_memory_does(store, most, plans):
    """227 KiB hold 4 stages of 48 KiB, or 3 beside a staged tile of 64 KiB; never 5."""
    _, (answer,) = plans(tutorial("grid.py"))
    found = of(answer, **POST, store=store)
    assert sorted(p.slots for p in found) == [*range(1, most + 1)]
    assert all(p.bytes <= 227 * KB for p in answer.found.plans)


def test_one_slot_has_nothing_to_overlap(plans):
    """The fill of 48 KiB, then the product, which is longer than its reads of shared memory:
    A once for each of one column of atoms, B once for each of two rows."""
    _, (answer,) = plans(tutorial("persistent.py"))
    (one,) = of(answer, **POST, store="loader", slots=1)
    product = 2 * 128 * 256 * 64 / PEAK
    assert Fraction(16 * KB + 2 * 32 * KB, SHARED) < product
    assert one.bound.step == Fraction(48 * KB, SHARED) + product
    (two,) = of(answer, **POST, store="loader", slots=2)
    assert two.bound.step < one.bound.step


def test_grid_runs_in_waves(plans):
    """64 x 68 CTAs on 132 SMs, one on each: 33 waves; the roofline's 1.48 ms."""
    _, (answer,) = plans(tutorial("grid.py"))
    best = answer.found.plans[0]
    assert best.waves == 33
    assert float(best.bound.total) == pytest.approx(80 * 33 * 2 * 128 * 256 * 64 / float(PEAK))


def test_two_resident_ctas_share_the_processor(plans):
    """Tiles of 64 x 64: small CTAs, several on an SM, whose steps take that many times as
    long and whose waves are fewer."""
    source = small(tile="64, 64, 64").replace("256, 256, 256", "8192, 8192, 256")
    _, (answer,) = plans(source)
    found = of(answer, form="SS", grid=(1, 1), copy="copy_async_tensor", roles="producer apart",
               store="consumers, registers", slots=2)  # fmt: skip
    (plan,) = found
    # 2 x 16 KiB of rings, 4 barriers, 1 KiB reserved each, of 228 KiB
    assert plan.bytes == 32 * KB + 32
    # 32 sums, 16 registers of pairs, 24: 72 of 256 threads; 65536 // (256 x 72) = 3
    assert plan.registers.need == 72 and plan.resident == 3
    assert plan.waves == -(-128 * 128 // (132 * 3))
    assert plan.bound.limit == "shared memory"
    # fill 16 KiB, read A and B once: 32 KiB a CTA
    assert plan.bound.step == 3 * Fraction(32 * KB, SHARED)


def test_an_operand_across_is_copied_plainly(plans):
    """fp8 takes B along k only; B stored along n can be turned by plain copies alone."""
    body = "acc += tf.matmul(a[m:m + BM, k], b[k, n:n + BN], out_dtype='f32')"
    _, (answer,) = plans(small("fp8e4m3", "64, 128, 64", body=body))
    wgmma = [p for p in answer.found.plans if "Wgmma" in p.compute.use.atom.path]
    assert wgmma and {p.moves[1].instr.path for p in wgmma} == {"copy"}
    assert "copy_async_tensor" in {p.moves[0].instr.path for p in wgmma}


def test_order_is_bound_then_bytes_in_flight(plans):
    loaded, answers = plans(tutorial("grid.py"))
    (answer,) = answers
    keys = [(p.bound.total, -p.in_flight) for p in answer.found.plans]
    assert keys == sorted(keys)
    again = plans(tutorial("grid.py"))[1]
    assert answer_record(answers, True) == answer_record(again, True)
    assert answer_text(answers, "x", True) == answer_text(again, "x", True)
    assert loaded.func == "gemm"


def test_every_plan_is_within_the_capacities(plans):
    _, (answer,) = plans(small())
    for plan in answer.found.plans:
        lead = plan.lead * plan.registers.others
        rest = (plan.units - plan.lead) * plan.registers.consumer
        assert plan.units <= 1024 and plan.units % 32 == 0
        assert plan.registers.need <= plan.registers.consumer <= 255
        if plan.registers.others:
            assert lead + rest <= 65536 and plan.lead % 128 == 0
        else:
            assert plan.units * plan.registers.launch <= 65536
        assert plan.bytes <= 227 * KB and plan.slots <= 256 // 32
    kinds = {p.compute.use.atom.path for p in answer.found.plans}
    assert kinds == {"cuda.sm90.Wgmma", "cuda.sm80.Mma"}
    assert {m.instr.path for p in answer.found.plans for m in p.moves} == {
        "copy_async_tensor", "copy_async_bulk", "copy_async", "copy"}  # fmt: skip


@pytest.mark.parametrize(
    ("store", "registers"),
    [
        ("out = tf.insert_slice(out, acc, (m, n))", 64 + 24),
        ("out = tf.insert_slice(out, tf.cast(acc, 'bf16'), (m, n))", 64 + 32 + 24),
        ("out = tf.insert_slice(out, tf.relu(acc), (m, n))", 64 + 64 + 24),
        ("out = tf.insert_slice(out, tf.cast(acc * acc, 'bf16'), (m, n))", 64 + 64 + 24),
    ],
)
def test_registers_are_those_of_the_widest_statement(store, registers, plans):
    """128 x 128 sums of two warpgroups are 64 registers; what is made of them comes beside."""
    out = "bf16" if "bf16" in store else "f32"
    _, (answer,) = plans(small(out=out, store=store))
    found = of(answer, form="SS", grid=(2, 1))
    assert {p.registers.need for p in found} == {registers}


SHIFT = """row = tf.reshard(a[0, n:n + BN], storage="rmem")
            shift = tf.cast(row, "f32")
            """


@pytest.mark.parametrize(
    ("store", "registers"),
    [
        # 32 sums beside 64 numbers of a row, which each thread holds, as f32 and as pairs
        (SHIFT + "out = tf.insert_slice(out, tf.cast(acc + shift, 'bf16'), (m, n))", 32 + 64 + 32),
        # 64 of them while 32 more sums are made
        (SHIFT + "out = tf.insert_slice(out, tf.cast(tf.relu(acc) + acc * shift, 'bf16'), (m, n))",
         32 + 32 + 32 + 64),
    ],
)  # fmt: skip
def test_registers_of_what_is_read_beside_the_sums(store, registers, plans):
    loaded, (answer,) = plans(small(tile="64, 64, 32", store=store))
    found = of(answer, form="SS", grid=(1, 1))
    assert {p.registers.need for p in found} == {registers + 24}
    text = written(Writer(answer.found.site, answer.target), found[0], loaded, {}).text
    planned = load_source("planned.py", None, {}, text)
    kernel = lower_func(planned.module, planned.module.funcs["gemm"], answer.target)
    assert max(r.registers for r in estimate(allocate(kernel))) == registers + 24


def test_a_row_that_no_thread_can_hold_is_infeasible(plans):
    store = SHIFT + "out = tf.insert_slice(out, tf.cast(acc + shift, 'bf16'), (m, n))"
    with pytest.raises(Refusal) as refusal:
        plans(small(tile="128, 256, 64", store=store))
    (diag,) = refusal.value.diags
    # 64 x 256 sums of 128 threads, the row in f32 and as pairs
    assert any("a consumer needs" in n and "a thread has 255" in n for n in diag.notes)


@pytest.mark.parametrize(
    ("source", "busy"),
    [
        (tutorial("grid.py"), Fraction(4352, 33 * 132)),
        (tutorial("persistent.py"), Fraction(4352, 33 * 132)),
        # 8 tiles are asked of 3 units of a loop: the busiest has 3, of 132 processors 3 work
        (tutorial("persistent.py").replace("8192, 17408", "512, 512").replace("132", "3"),
         Fraction(8, 3 * 132)),
    ],
)  # fmt: skip
def test_how_long_processors_have_a_tile(source, busy, plans):
    _, (answer,) = plans(source, 1)
    assert {p.busy for p in answer.found.plans if p.resident == 1} == {busy}


def test_what_the_document_does_not_state_is_said(plans):
    _, answers = plans(tutorial("grid.py"), 1)
    text = answer_text(answers, "grid.py", False)
    assert "# unavailable memory.l2.bandwidth: not published" in text
    assert "needs=unavailable (latency.tensor_copy: not published" in text
    assert "not claimed optimal" in text.splitlines()[1]


REFUSED = [
    (small("f32", out="f32", store="out = tf.insert_slice(out, acc, (m, n))"), [
        "T.cuda.sm90.Wgmma parameter: dtype = f32 does not match dtype in",
        "T.cuda.sm80.Mma parameter: dtype = f32 does not match dtype in",
        "T.cuda.sm89.Mma parameter: dtype = f32 does not match dtype in"]),
    (small(tile="50, 70, 32").replace("256, 256, 256", "200, 280, 256"), [
        "T.cuda.sm90.Wgmma shape: m = 50 does not match m a multiple of 64",
        "T.cuda.sm80.Mma shape: m = 50 does not match m a multiple of 16"]),
    (small(tile="256, 256, 256"), ["registers: a consumer needs"]),
    (small(body="acc = acc + tf.matmul(a[m:m + BM, k], b[k, n:n + BN], out_dtype='f32') * 2.0"),
     ["its product is not summed into a value carried by the loop"]),
    (small(body="acc += tf.matmul(tf.exp(a[m:m + BM, k]), b[k, n:n + BN], out_dtype='f32')"),
     ["operand 0 is tf.exp, not a tile of device memory"]),
    (small(body=f"""{small.__defaults__[5]}
                acc += tf.matmul(a[m:m + BM, k], b[k, n:n + BN], out_dtype='f32')"""),
     ["it has 2 products, one can be planned"]),
]  # fmt: skip


@pytest.mark.parametrize(("source", "notes"), REFUSED)
def test_nothing_feasible_says_why(source, notes, plans):
    with pytest.raises(Refusal) as caught:
        plans(source)
    (diag,) = caught.value.diags
    assert diag.code == "plan-infeasible"
    for note in notes:
        assert any(found.startswith(note) for found in diag.notes), diag.notes


def measured(folder, monkeypatch, latency, l2):
    """A document of one's own: the H200's with two figures that nobody has published."""
    from tilefoundry.targets import load

    text = (load.SHIPPED / "cuda" / "facts" / "nvidia.h200_sxm.toml").read_text(encoding="utf-8")
    how = 'origin = "measured"\nsource = "a test"\nconditions = "made up"'
    text = text.replace('id = "nvidia.h200_sxm"', 'id = "my.h200"')
    for path, unit, value in (
        ("latency.tensor_copy", "s", latency),
        ("memory.l2.bandwidth", "byte/s", l2),
    ):
        head = f"[facts.{path}]\n"
        before, _, after = text.partition(head)
        _, _, rest = after.partition("\n")
        text = f'{before}{head}value = {value}\nunit = "{unit}"\n{how}\n{rest}'
    (folder / "targets").mkdir()
    (folder / "targets" / "my.h200.toml").write_text(text, encoding="utf-8")
    monkeypatch.setenv("TILEFOUNDRY_HOME", str(folder))
    return tutorial("persistent.py").replace("nvidia.h200_sxm", "my.h200")


def test_a_stated_latency_bounds_what_few_slots_hide(plans, tmp_path, monkeypatch):
    """1.5 us: two loads ahead leave 750 ns to a step, three 500 ns, less than the product."""
    source = measured(tmp_path, monkeypatch, 1.5e-6, 2.0e13)
    _, answers = plans(source)
    found = {p.slots: p.bound for p in of(answers[0], **POST, store="loader")}
    product = 2 * 128 * 256 * 64 / PEAK
    assert float(found[1].step) == pytest.approx(1.5e-6 + float(product))
    assert (float(found[2].step), found[2].limit) == (pytest.approx(750e-9), "latency")
    assert (found[3].step, found[3].limit) == (product, "matrix")
    # 1.5 us x 4.8 TB/s / 132 SMs
    text = answer_text(answers, "x", False)
    assert f"needs={1.5e-6 * 4.8e12 / 132 / KB:.2f}KB (latency 1.50us x bandwidth of gmem)" in text
    assert "unavailable" not in text


def test_a_stated_bandwidth_of_the_cache_bounds_too(plans, tmp_path, monkeypatch):
    """48 KiB a step at 5 TB/s / 132 take 1298 ns."""
    _, (answer,) = plans(measured(tmp_path, monkeypatch, 1.0e-9, 5.0e12))
    best = answer.found.plans[0]
    assert best.bound.limit == "l2"
    assert float(best.bound.step) == pytest.approx(48 * KB * 132 / 5e12)
