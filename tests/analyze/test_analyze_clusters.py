"""What analyze says of loads that CTAs of a cluster share, and of the processors they get."""

import sys
from pathlib import Path

from tilefoundry.analyze.report import MEMORY, analyze
from tilefoundry.lang.load import load_source

sys.path.append(str(Path(__file__).parents[1] / "programs"))
import sizes


def lines(case, **consts):
    report = analyze(load_source(sizes.path(case), None, consts), [MEMORY], {}, None)
    return [line.text() for line in report.head]


def words(found, head, **has):
    wanted = [f"{k}={v}" for k, v in has.items()]
    line = next(x for x in found if x.startswith(head) and all(w in x.split() for w in wanted))
    return dict(w.split("=", 1) for w in line.split()[1:])


def test_a_shared_load_is_read_once_for_the_cluster():
    found = lines("gemm_halves@pair", PAIR=2, M=8192, N=17408, K=4096)
    # 32 x 68 pairs of tiles, 64 steps: two tiles of A (16 KiB) each, one of B (32 KiB) for both
    steps = 32 * 68 * 64
    read = words(found, "traffic", storage="gmem")["read"]
    assert read == f"{steps * (2 * 16 + 32) / 2**20:.2f}GB"
    # each CTA receives the whole of both, and stages its tile of C
    written = words(found, "traffic", storage="smem")["written"]
    assert written == f"{(steps * 2 * (16 + 32) + 8192 * 17408 * 2 / 2**10) / 2**20:.2f}GB"


def test_clusters_of_four_get_fewer_processors():
    pairs, fours = (
        words(lines("softmax_cluster", CTAS=n, CLUSTERS=132 // n, COLS=16384 * n), "units")
        for n in (2, 4)
    )
    assert (pairs["processors"], fours["processors"]) == ("132", "120")
    # 33 clusters of four are 132 CTAs: three of the clusters come after the others
    assert (pairs["waves"], pairs["tail"]) == ("1", "132/132")
    assert (fours["waves"], fours["tail"]) == ("2", "12/120")
