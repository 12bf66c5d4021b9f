"""The vector unit: 32 registers of 8 lanes. What all targets have works on them, and this."""

from tilefoundry.targets.contract.spoken import CText
from tilefoundry.targets.contract.unit import UnitInstr

RELU = """
static inline f32v rill_relu(f32v x) {
    for (int l = 0; l < TF_LANES; l++) x[l] = x[l] < 0 ? 0 : x[l];
    return x;
}
"""
CONTRACTS = (
    UnitInstr(
        "rill.vector.Relu", "relu", ("relu",), ("rmem",), 14, "rill_vector",
        "Rill reference manual", dtypes=("f32",), c=CText("rill_relu", RELU),
    ),
)  # fmt: skip
