"""Values that share a place: views, updates, carried values, copies, in any order.

Whatever order a program reads and updates in, its lowered form computes what the program
means, or is refused; the reference is the evaluator, where every value is immutable.
"""

from random import Random

import pytest
import torch

from tilefoundry.diag import Refusal
from tilefoundry.evaluate import evaluate
from tilefoundry.interpret import run_program
from tilefoundry.lang.load import load_source
from tilefoundry.lower import lower
from tilefoundry.verify import verify

PROGRAM = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget


@module(
    entry="f",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", 1), Topology("thread", 32)),
)
class Placed:
    @func
    def f(x: Tensor[(8, 64), "f32"]) -> Tensor[(8, 64 * {parts}), "f32"]:
        out = tf.{made}(Tensor[(8, 64 * {parts}), "f32"])
        with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(32,), names=("l",)) as t:
                r = tf.reshard(x, (8, 32 @ t.l, 2), "rmem")
{body}
        return out
"""
SAME = '(8, 32 @ t.l, 2), "rmem"'
INTO_D = "tf.schedule(({}, d), op=T.copy())"

ACCEPTED = {
    "copied, then the copy updated": f"""
        z = r * 2.0
        n = tf.insert_slice(tf.reshard(z, {SAME}), r[0:3, :], (2, 0))
        store n
        store z""",
    "copied in a loop, then the copy updated": f"""
        z = r * 2.0
        for k in range(0, 3):
            n = tf.insert_slice(tf.reshard(z, {SAME}), r[0:1, :], (k, 0))
            store n at k
        """,
    "carried, its start a view of what is read later": """
        z = r * 2.0
        q = tf.reshape(z, (2, 4, 64))
        for k in range(0, 3):
            z = z + 1.0
        store tf.reshape(q, (8, 64))
        store z""",
    "carried, a view of the old value read after the new is made": """
        a = r * 1.0
        for k in range(0, 3):
            old = tf.reshape(a, (4, 2, 64))
            a = a * 2.0
            store tf.reshape(old, (8, 64)) at k""",
    "carried, mixed with a view of itself": """
        a = r * 1.0
        for k in range(0, 3):
            a = a + a[0:1, :]
        store a""",
    "two carried values with one start": """
        a = r * 2.0
        b = tf.reshape(a, (8, 64))
        for k in range(0, 3):
            a = a + 1.0
            b = b * 2.0
        store a
        store b""",
    "an update that lies in its destination": """
        a = r * 1.0
        a = tf.insert_slice(a, a[0:7, :], (1, 0))
        store a""",
    "a part that the update does not meet": """
        z = r * 2.0
        v = z[0:4, :]
        n = tf.insert_slice(z, r[0:4, :], (4, 0))
        store n
        store n + v[0:1, :]""",
    "a destination written again after its last read": f"""
        d = tf.empty(Tensor[(8, 64), "f32", "smem"])
        n = {INTO_D.format("r")}
        a = tf.reshard(n, {SAME})
        m = {INTO_D.format("a * 2.0")}
        store tf.reshard(m, {SAME}) + a""",
}
SEEN = {
    "padded": "tf.pad(r[1:8, :], (0, 0, 1, 2), -1.0)[1:9, :]",
    "padded twice": "tf.pad(tf.pad(r[0:4, :], (0, 0, 1, 1), 5.0), (0, 0, 0, 2), 2.0)",
    "repeated": "tf.repeat_interleave(r[2:6, :], 2, 0)",
    "repeated, then cut": "tf.repeat_interleave(r, 3, 0)[7:15, :]",
    "every other row, twice": "tf.repeat_interleave(r[0:8:2, :], 2, 0)",
}
READ = {
    "stored": "store {}",
    "computed with": "store {} * 2.0 + r",
    "reduced": "store tf.reduce({}, (0,), True, 'sum') + r",
    "through shared memory": "store tf.reshard(tf.reshard({}, (8, 64), 'smem'), {same})",
    "carried": """a = {}
        for k in range(0, 3):
            a = a + r
        store a""",
}

REFUSED = {
    "updated through a view": """
        z = r * 2.0
        v = tf.reshape(z, (2, 4, 64))
        n = tf.insert_slice(v, tf.reshape(r[0:3, :], (1, 3, 64)), (1, 0, 0))
        store tf.reshape(n, (8, 64)) + z""",
    "a view of the old value": """
        z = r * 2.0
        v = z[0:4, :]
        n = tf.insert_slice(z, r[0:3, :], (2, 0))
        store n + v[0:1, :]""",
    "a part of split": """
        a, b = tf.split(r, 2, 0)
        n = tf.insert_slice(r, b * 2.0, (0, 0))
        store n + a[0:1, :]""",
    "again in each step of a loop": """
        z = r * 2.0
        for k in range(0, 3):
            n = tf.insert_slice(z, r[0:1, :], (k, 0))
            store n at k""",
    "two copies into one destination": f"""
        d = tf.empty(Tensor[(8, 64), "f32", "smem"])
        n = {INTO_D.format("r")}
        m = {INTO_D.format("r * 2.0")}
        store tf.reshard(n, {SAME}) + tf.reshard(m, {SAME})""",
    "a copy over a value": """
        z = r * 2.0
        m = tf.schedule((r, z), op=T.copy())
        store z + m""",
    "a view of shared memory": f"""
        s = tf.reshard(r, (8, 64), "smem")
        v = tf.transpose(s, (1, 0))
        s = tf.insert_slice(s, tf.reshard(r * 2.0, (8, 64), "smem"), (0, 0))
        store tf.reshard(tf.transpose(v, (1, 0)), {SAME}) + tf.reshard(s, {SAME})""",
}


def source(body: str, made: str = "empty") -> str:
    """The program of a body; ``store V`` puts V beside what is stored already."""
    lines, parts = [], 0
    for line in body.strip("\n").splitlines():
        line = line[8:]
        if line.strip().startswith("store "):
            value, _, at = line.strip().removeprefix("store ").partition(" at ")
            begin = f"({parts} + {at}) * 64" if at else str(parts * 64)
            indent = line[: len(line) - len(line.lstrip())]
            line = f"{indent}out = tf.insert_slice(out, {value}, (0, {begin}))"
            parts += 3 if at else 1
        lines.append(" " * 16 + line)
    return PROGRAM.format(body="\n".join(lines), parts=parts, made=made)


def right(text: str, tmp_path) -> None:
    torch.set_num_threads(1)
    path = tmp_path / "placed.py"
    path.write_text(text, encoding="utf-8")
    loaded = load_source(str(path), None, {})
    program = lower(loaded.module, loaded.func)
    assert [f for k in program.kernels.values() for f in verify(k)] == []
    x = torch.randint(-3, 4, (8, 64), generator=torch.Generator().manual_seed(1)).float()
    (want,) = evaluate(loaded.module, loaded.func, [x])
    found = run_program(program, {"x": x}, seed=1)
    assert found.reports == []
    assert torch.equal(found.outputs[0], want)


@pytest.mark.parametrize("body", ACCEPTED.values(), ids=list(ACCEPTED))
def test_each_read_finds_its_own_version(body, tmp_path):
    right(source(body), tmp_path)


@pytest.mark.parametrize("read", READ.values(), ids=list(READ))
@pytest.mark.parametrize("view", SEEN.values(), ids=list(SEEN))
def test_what_only_moves_elements_is_read_by_anything(view, read, tmp_path):
    right(source("        " + read.replace("{same}", SAME).replace("{}", view)), tmp_path)


@pytest.mark.parametrize("body", REFUSED.values(), ids=list(REFUSED))
def test_an_update_that_destroys_what_is_read_later_is_refused(body, tmp_path):
    with pytest.raises(Refusal) as refusal:
        right(source(body), tmp_path)
    assert refusal.value.diags[0].code == "lower-clobbered"


def test_a_fill_of_a_result_that_is_read_is_not_dropped(tmp_path):
    text = source(f"""
        q = tf.reshard(out, {SAME})
        store q + r""", made="zeros")  # fmt: skip
    with pytest.raises(Refusal) as refusal:
        right(text, tmp_path)
    assert refusal.value.diags[0].code == "lower-fill"


def drawn(seed: int) -> str:
    """Statements over a few values of one type, in any order, loops up to two deep."""
    rng = Random(seed)
    names = ["r"]
    lines: list[str] = []

    def value() -> str:
        a, b = rng.choice(names), rng.choice(names)
        copy = a if rng.random() < 0.15 else f"tf.reshard({a}, {SAME})"
        at, size = rng.randint(0, 3), rng.randint(1, 4)
        return rng.choice((
            f"{a} + {b}", f"{a} * 2.0", f"{a} + {b}[{at}:{at + 1}, :]", a,
            f"tf.reshard({a}, {SAME})", f"tf.reshape({a}, (8, 64))",
            f"tf.insert_slice({copy}, {b}[{at}:{at + size}, :], ({rng.randint(0, 4)}, 0))",
            f"tf.insert_slice({copy}, {b}[{at}:{at + 4}, :] + 1.0, (4, 0))",
        ))  # fmt: skip

    def block(depth: int, count: int) -> None:
        pad = " " * 8 + "    " * depth
        for _ in range(count):
            if depth < 2 and rng.random() < 0.25:
                before = list(names)
                lines.append(f"{pad}for k{depth} in range(0, {rng.randint(0, 3)}):")
                block(depth + 1, rng.randint(1, 4))
                names[:] = before
                continue
            name = rng.choice([*names[1:], f"v{len(lines)}"])
            lines.append(f"{pad}{name} = {value()}")
            if name not in names:
                names.append(name)

    block(0, rng.randint(3, 8))
    return source("\n".join([*lines, *(f"        store {n}" for n in names)]))


@pytest.mark.parametrize("seed", range(60))
def test_a_drawn_order_of_reads_and_updates(seed, tmp_path):
    try:
        right(drawn(seed), tmp_path)
    except Refusal as refusal:
        assert refusal.diags[0].code == "lower-clobbered", str(refusal)


@pytest.mark.parametrize(
    "target, levels, scopes",
    [
        ("cpu.generic", ("core", "lane"), ['Mesh(("core",)', "lane scopes inside it"]),
        ("nvidia.h200_sxm", ("cta", "thread"), ['Mesh(("cta",)', "thread scopes inside it"]),
        ("cpu.generic", (), ['Mesh(("core",)', "lane scopes inside it"]),
    ],
)
def test_units_that_lack_are_those_of_the_target(tmp_path, target, levels, scopes):
    path = tmp_path / "plain.py"
    declared = ", ".join(f'Topology("{level}", 4)' for level in levels)
    path.write_text(
        "from tilefoundry.dsl import *\n"
        "from tilefoundry.target import AnyTarget\n\n\n"
        f'@module(entry="f", target=AnyTarget("{target}"), topologies=({declared}))\n'
        "class Plain:\n"
        "    @func\n"
        '    def f(x: Tensor[(4, 128), "f32"]):\n'
        "        return tf.exp(x)\n"
    )
    loaded = load_source(str(path), None, {})
    with pytest.raises(Refusal) as caught:
        lower(loaded.module, loaded.func)
    (found,) = caught.value.diags
    assert found.code == "lower-no-units"
    assert all(words in found.fix for words in scopes)
