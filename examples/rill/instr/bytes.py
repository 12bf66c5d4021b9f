"""Products of bytes: 4 neighbours along k in each 32 bits of a strip, sums of 32 bits that wrap."""

from dataclasses import replace

from tilefoundry.targets.contract import OneOf, ParamDef, TensorPattern
from tilefoundry.targets.contract.spoken import CText
from tilefoundry.targets.contract.sums import Sums

from .tile import OUTER, SUMS, across, down

CODE = """
static inline void rill_outer_i8(rill_unit *u, int sum, int a, int b) {
    for (int k = 0; k < 16; k++)
        for (int m = 0; m < 16; m++)
            for (int n = 0; n < 16; n++) {
                int32_t x;
                memcpy(&x, u->sum[sum][m] + 4 * n, 4);
                x += (int8_t)u->strip[a][k / 4][4 * m + k % 4]
                     * (int8_t)u->strip[b][k / 4][4 * n + k % 4];
                memcpy(u->sum[sum][m] + 4 * n, &x, 4);
            }
}
#define rill_outer_i8(...) rill_outer_i8(&rill, __VA_ARGS__)
"""
CONTRACTS = (
    replace(
        OUTER,
        path="rill.tile.OuterI8",
        A=TensorPattern((16, 16), "i8", "strip", (down(16, 4),)),
        B=TensorPattern((16, 16), "i8", "strip", (across(16, 4),)),
        C=TensorPattern((16, 16), "i32", "sum", (SUMS,)),
        parameters=(ParamDef("dtype", (OneOf("dtype", ("i8",)),)),),
        rank=2,
        sums=Sums((tuple(range(16)),)),
        c=CText("rill_outer_i8", CODE),
    ),
)
