"""Samples of activations."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T
from tests.python.op.samples._vjp import pulled_back


def hardsigmoid_dx(x: Any, dy: Any) -> Any:
    """torch differentiates its own no further."""
    return torch.where(x.abs() < 3, dy / 6, 0)


SAMPLES = [
    Sample("hardshrink", T(3, 5, low=-2, high=2, avoid=(-0.5, 0.5)), ref=F.hardshrink),
    Sample("hardshrink", T(9, low=-2, high=2, avoid=(-1, 1)), 1.0, ref=F.hardshrink),
    Sample("hardsigmoid", T(3, 5, low=-5, high=5, avoid=(-3, 3)), ref=F.hardsigmoid),
    Sample("hardswish", T(3, 5, low=-5, high=5, avoid=(-3, 3)), ref=F.hardswish),
    Sample("hardsigmoid_dx", T(3, 5, low=-5, high=5, avoid=(-3, 3)), T(3, 5), ref=hardsigmoid_dx),
    Sample("hardswish_dx", T(3, 5, low=-5, high=5, avoid=(-3, 3)), T(3, 5), ref=partial(pulled_back, F.hardswish)),
    Sample(
        "hardtanh_dx",
        T(9, low=-2, high=2, avoid=(-0.5, 1.5)),
        T(9),
        -0.5,
        1.5,
        ref=lambda x, dy, *bounds: pulled_back(lambda x: F.hardtanh(x, *bounds), x, dy),
    ),
    Sample("hardtanh", T(3, 5, low=-2, high=2, avoid=(-1, 1)), ref=F.hardtanh),
    Sample("hardtanh", T(9, low=-2, high=2, avoid=(-0.5, 1.5)), -0.5, 1.5, ref=F.hardtanh),
    Sample("hardtanh", T(9, dtype="int32", low=-9, high=9), -3, 6, ref=F.hardtanh, id="ints"),
    Sample("logsigmoid", T(3, 5, low=-9, high=9), ref=F.logsigmoid),
    Sample("mish", T(3, 5, low=-9, high=9), ref=F.mish),
    Sample("mish", T(9, low=15, high=25), ref=F.mish, id="large"),
    Sample("selu", T(3, 5, low=-3, high=3, avoid=(0,)), ref=F.selu),
    Sample("softshrink", T(3, 5, low=-2, high=2, avoid=(-0.5, 0.5)), ref=F.softshrink),
    Sample("softshrink", T(9, low=-2, high=2, avoid=(-1, 1)), 1.0, ref=F.softshrink),
    Sample("softsign", T(3, 5, low=-3, high=3, avoid=(0,)), ref=lambda x: F.softsign(1.0 * x)),
    Sample("tanhshrink", T(3, 5, low=-3, high=3), ref=F.tanhshrink),
]
ERRORS = [
    ErrorCase("hardswish", T(3, dtype="int32"), error=TypeInferenceError, match="'x' has dtype int32"),
    ErrorCase("hardtanh", T(3), 2.0, 1.0, error=TypeInferenceError, match="low is 2.0, high is 1.0"),
    ErrorCase("hardtanh", T(3, dtype="uint8"), error=TypeInferenceError, match="-1.0 does not fit into uint8"),
    ErrorCase("softshrink", T(3), -0.5, error=TypeInferenceError, match="lambd is -0.5; expected a number"),
]
