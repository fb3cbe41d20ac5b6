"""TE computes of operators on complex numbers, for real operands."""

from __future__ import annotations

import math

from meta.backend.tvm.intrinsic import Expr, dtype_of
from meta.backend.tvm.te.elementwise import const, is_float, is_nan, select
from meta.op.dialect.tvm import Registrar

elementwise = Registrar(__file__).elementwise


def angle(x: Expr) -> Expr:
    plain = select(x < const(x, 0), const(x, math.pi), const(x, 0))
    return select(is_nan(x), x, plain) if is_float(x) else plain


def sign(x: Expr) -> Expr:
    one, zero = const(x, 1), const(x, 0)
    negative = zero if dtype_of(x).startswith("u") else select(x < zero, -one, zero)
    return select(x > zero, one, negative)


elementwise({"angle": angle, "conj": lambda x: x, "real": lambda x: x, "sgn": sign})
