"""Operators that change shape, dtype or device, join or split, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta import dtype as dtypes
from meta.ir.expr import CallInfo
from meta.op.dialect.reference import DIALECT


def cast(x: Any, dtype: str) -> Any:
    """The same values; of complex numbers, as other dtypes, the real parts."""
    if x.dtype.kind == "c" and not dtypes.is_complex(dtype):
        x = x.real
    with np.errstate(invalid="ignore", over="ignore"):  # values out of range are converted as NumPy does
        return x.astype(dtypes.to_numpy(dtype))


def split(x: Any, indices_or_sections: int | tuple[int, ...], axis: int) -> tuple[Any, ...]:
    return tuple(np.split(x, indices_or_sections, axis))


def concatenate(xs: list[Any], axis: int) -> Any:
    return np.concatenate(xs, axis)


def _refuse_other_devices(call: CallInfo) -> str | None:
    """Why a copy is refused: NumPy writes no memory but the CPU's."""
    target = call.outputs()[0].device
    return None if target.kind == "cpu" else f"the result is on {target}"


DIALECT.implement("bitcast", lambda x, dtype: np.ascontiguousarray(x).view(dtypes.to_numpy(dtype)).reshape(x.shape))
DIALECT.implement("broadcast_to", np.broadcast_to)
DIALECT.implement("cast", cast)
DIALECT.implement("concatenate", concatenate)
DIALECT.implement("device_copy", lambda x, device: x, accepts=_refuse_other_devices)
DIALECT.implement("split", split)
DIALECT.implement("transpose", np.transpose)
