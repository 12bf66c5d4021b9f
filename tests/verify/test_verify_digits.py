"""What digits of indices prove of device memory is what every window one by one says."""

from hypothesis import given, settings
from hypothesis import strategies as st
from rules import Kernel, copy, loop

from tilefoundry.ir.dtype import BF16
from tilefoundry.ir.expr import maximum, minimum
from tilefoundry.tir.program import Buffer, whole, window
from tilefoundry.verify import device, judge

COLUMNS = 4


CLAMPS = {
    "late": lambda i, part, step: maximum(i - 2, 0) * step,
    "early": lambda i, part, step: minimum(i, max(part // step, 1) - 1) * step,
    "both": lambda i, part, step: maximum(minimum(i - 1, max(part // step, 1) - 1), 0) * step,
    "rough": lambda i, part, step: maximum(i * step - 3, 0),
    "twice": lambda i, part, step: maximum(i - 1, 0) * step + minimum(i, 1),
}
"""Where a window of a part begins, by a step of a loop of two steps more than it has windows."""


def rows_of(form, cta, ctas):
    """The rows where each window of a block begins, as the loop in ``accesses`` has them."""
    kind, part, step, shift, _ = form
    if kind in CLAMPS:
        steps = range(part // step + 2)
        starts = [cta * part + CLAMPS[kind](i, part, step) for i in steps]
    elif kind == "part":
        starts = range(cta * part, cta * part + part, step)
    elif kind == "dealt":
        starts = range(cta * step, ctas * part, ctas * step)
    else:
        starts = range(shift, part, step)
    return [r + shift if kind != "fixed" else r for r in starts]


def accesses(k, form, make):
    """A loop over the rows of a form; ``make`` gives the statement at a row."""
    kind, part, step, shift, _ = form
    ctas = dict(k.sizes)["cta"]
    c = k.grid.coordinate("c", "cta")
    if kind in CLAMPS:
        place = CLAMPS[kind]
        steps = part // step + 2
        return loop("i", steps, lambda i: (make(c * part + place(i, part, step) + shift),))
    if kind == "part":
        return loop("i", c * part + part, lambda i: (make(i + shift),), c * part, step)
    if kind == "dealt":
        return loop("i", ctas * part, lambda i: (make(i + shift),), c * step, ctas * step)
    return loop("i", part, lambda i: (make(i),), shift, step)


FORMS = st.tuples(
    st.sampled_from(["part", "part", "dealt", "fixed", *CLAMPS]),
    st.sampled_from([4, 8, 12]),  # rows of a block
    st.sampled_from([1, 2, 4, 8]),  # from one window to the next
    st.sampled_from([0, 0, 0, 1, 2, 4]),  # where windows begin
    st.sampled_from([1, 2, 4]),  # rows of a window
)


def kernel(ctas, rows, writes, reads, role):
    k = Kernel(32, ctas)
    memory = k.gmem("memory", (rows, COLUMNS), role)
    for number, form in enumerate((*writes, *reads)):
        tile = Buffer(f"tile{number}", (form[4], COLUMNS), BF16, "rmem", mesh=k.inside)
        k.buffers.append(tile)
    body = []
    for number, form in enumerate((*writes, *reads)):
        tile, stores = whole(k.buffers[number]), number < len(writes)

        def make(row, tile=tile, form=form, out=stores):
            place = window(whole(memory), (row, 0), (form[4], COLUMNS))
            return copy(tile, place) if out else copy(place, tile)

        body.append(accesses(k, form, make))
    return k.func(*body)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 4),
    st.lists(FORMS, min_size=1, max_size=4),
    st.lists(FORMS, max_size=2),
    st.booleans(),
)
def test_digits_and_windows_agree(ctas, writes, reads, out):
    rows = 1 + max(
        (r + form[4] - 1 for form in (*writes, *reads) for c in range(ctas)
         for r in rows_of(form, c, ctas)), default=0,
    )  # fmt: skip
    touched = {}
    written, pieces = set(), set()
    for number, form in enumerate((*writes, *reads)):
        for c in range(ctas):
            for r in rows_of(form, c, ctas):
                for row in range(r, r + form[4]):
                    touched.setdefault(row, set()).add((c, number < len(writes)))
                if number < len(writes):
                    pieces.add((r, form[4]))
                    written |= set(range(r, r + form[4]))
    shared = any(len({c for c, _ in by}) > 1 and any(w for _, w in by) for by in touched.values())
    codes = {f.code for f in judge(kernel(ctas, rows, writes, reads, "out" if out else "work"))}
    codes -= {"read-unwritten", "sync-race"}
    assert ("device-overlap" in codes) == shared
    apart = sum(height for _, height in pieces) == len(written)
    if out and apart:
        assert ("device-unwritten" in codes) == (len(written) < rows)


def test_a_panel_of_a_core_in_tiles_needs_no_enumeration(monkeypatch):
    """Parts of rows in steps of two windows, each stored by statements of its own."""

    def enumerated(*_):
        raise AssertionError("windows are looked at one by one")

    monkeypatch.setattr(device, "windows_of", enumerated)
    forms = [("part", 64, 8, 0, 4), ("part", 64, 8, 4, 4)]
    assert not list(judge(kernel(4, 256, forms, (), "out")))
    assert not list(judge(kernel(4, 256, [("dealt", 64, 4, 0, 4)], (), "out")))
    for kind in ("late", "early", "both"):
        forms = [(kind, 64, 8, 0, 4), (kind, 64, 8, 4, 4)]
        assert not list(judge(kernel(4, 256, forms, (), "out")))
