"""Random schedules in HIR, as source: whole programs that go through every stage.

A tile is loaded into a ring step by step by one of four copies, added up in registers by the
same threads or by others, and stored plainly or through shared memory by a third role.
Stages 1 to 8, trips 0 to 9 (also uneven), one to four roles, tiles of several shapes.
"""

from __future__ import annotations

from random import Random

COPIES = ("copy", "copy_async", "copy_async_bulk", "copy_async_tensor")

PROGRAM = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

R, C, STEPS, TASKS, CTAS = {rows}, {cols}, {steps}, {tasks}, {ctas}


@module(
    entry="f",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", CTAS), Topology("thread", {threads})),
)
class Drawn:
    @func
    def f(x: Tensor[({count}, C), "{dtype}"]) -> Tensor[(TASKS * R, C), "{dtype}"]:
        out = tf.empty(Tensor[(TASKS * R, C), "{dtype}"])
        with Mesh(("cta",), layout=(CTAS,), names=("c",)) as cta:
            with Mesh(("thread",), layout=({warps}, 32), names=("w", "l")) as t:
                for task in range(cta.c, TASKS, CTAS):
{body}
        return out
"""


def schedule(seed: int) -> str:
    """The source of one program."""
    rng = Random(seed)
    using = rng.choice((1, 2, 4))
    loaders = rng.choice((0, 0, 1, 1, 2))  # 0: the threads that use the tile load it
    second = rng.random() < 0.3  # another role that reads the same tiles
    storing = rng.choice(("plain", "plain", "staged", "staged by another"))
    dtype = rng.choice(("f32", "bf16"))
    rows = using * rng.choice((1, 2, 4))
    cols = rng.choice((32, 64, 128)) * (2 if dtype == "bf16" else 1)
    steps, stages = rng.randint(0, 9), rng.randint(1, 8)
    ctas = rng.choice((1, 2))
    tasks = rng.randint(1, 5)
    uneven = steps > 1 and rng.random() < 0.25
    first = rng.randint(0, 1)  # an idle warp in front

    at = first
    parts: dict[str, tuple[int, int]] = {}
    for name, count in (
        ("use", using), ("load", loaders), ("twin", using if second else 0),
        ("store", 1 if storing == "staged by another" else 0),
    ):  # fmt: skip
        parts[name] = (at, at + count)
        at += count
    if not loaders:
        parts["load"] = parts["use"]
    warps = at

    def scope(name: str) -> str:
        lo, hi = parts[name]
        return f"with t[{lo}:{hi}, :] as {name}:"

    def held(name: str) -> str:
        lo, hi = parts[name]
        return f"({hi - lo} @ {name}.w, {rows // (hi - lo)}, 32 @ {name}.l, {cols // 32})"

    trips = "task % 3 + 1" if uneven else "STEPS"
    stop = 3 if uneven else max(steps, 1)
    copy = rng.choice(COPIES)
    move = rng.choice(("copy_async_bulk", "copy_async_tensor"))
    users = ["use", "twin"] if second else ["use"]
    lines: list[str] = []
    for user in users:
        made = f'tf.zeros(Tensor[(R, C), "{dtype}", {held(user)}, "rmem"])'
        lines += [scope(user), f"    acc_{user} = {made}"]
    lines += [
        f"for k in range({trips}):",
        f"    {scope('load')}",
        f'        ring = tf.empty(Tensor[(R, C), "{dtype}", "smem"], buffers={stages})',
        f"        row = (task * {stop} + k) * R",
        f"        tile = tf.schedule((x[row:row + R, :], ring), op=T.{copy}())",
    ]
    for user in users:
        lines += [
            f"    {scope(user)}",
            f'        part = tf.reshard(tile, {held(user)}, "rmem")',
            f"        acc_{user} = acc_{user} * 2.0 + part",
        ]
    if second:
        # the twin's sum is only kept alive: both store, the second over the first
        lines += [
            scope("twin"),
            '    handed = tf.reshard(acc_twin, (R, C), "smem")',
            scope("use"),
            f'    acc_use = acc_use + tf.reshard(handed, {held("use")}, "rmem")',
        ]
    if storing == "plain":
        lines += [scope("use"), "    out = tf.insert_slice(out, acc_use, (task * R, 0))"]
    else:
        by = "store" if storing == "staged by another" else "use"
        lines += [
            scope("use"),
            '    staged = tf.reshard(acc_use, (R, C), "smem")',
            scope(by),
            f'    place = tf.empty(Tensor[(R, C), "{dtype}"])',
            f"    stored = tf.schedule((staged, place), op=T.{move}())",
            "    out = tf.insert_slice(out, stored, (task * R, 0))",
        ]
    body = "\n".join(" " * 20 + line for line in lines)
    return PROGRAM.format(
        rows=rows, cols=cols, steps=steps, tasks=tasks, ctas=ctas, threads=32 * warps,
        count=f"TASKS * {stop} * R", dtype=dtype, warps=warps, body=body,
    )  # fmt: skip
