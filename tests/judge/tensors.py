"""Tensors for the judge's tests, made from numpy arrays."""

import numpy as np

from tilefoundry.ir.dtype import DTYPES
from tilefoundry.judge.tensor import RawTensor


def raw(values, dtype="f32"):
    values = np.asarray(values)
    return RawTensor.from_values(DTYPES[dtype], values.shape, values.astype(np.float64))


def integers(values, dtype="i32"):
    values = np.asarray(values)
    return RawTensor.from_values(DTYPES[dtype], values.shape, values)
