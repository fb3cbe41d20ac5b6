"""Samples of operators that change shape, type or place."""

from __future__ import annotations

from typing import Any

import torch

from meta.errors import ArgumentError, TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T


def _expand_dims(x: Any, axis: Any) -> Any:
    axes = (axis,) if isinstance(axis, int) else axis
    for position in sorted(a % (x.ndim + len(axes)) for a in axes):
        x = x.unsqueeze(position)
    return x


def _transpose(x: Any, axes: Any = None) -> Any:
    return x.permute(tuple(reversed(range(x.ndim))) if axes is None else axes)


def _split(x: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    return torch.tensor_split(x, indices_or_sections, axis)


def _cast(x: Any, dtype: str) -> Any:
    return x.to(getattr(torch, dtype))


def _bitcast(x: Any, dtype: str) -> Any:
    to = getattr(torch, dtype)
    if x.element_size() != to.itemsize:  # references also run on operands that were widened to float64
        x = x.to({2: torch.float16, 4: torch.float32}[to.itemsize])
    return x.view(to)


SAMPLES = [
    Sample("bitcast", T(2, 3), "int32", ref=_bitcast),
    Sample("bitcast", T(2, 3, dtype="int64", low=-9, high=9), "float64", ref=_bitcast),
    Sample("bitcast", T(2, 3, dtype="float16"), "bfloat16", ref=_bitcast),
    Sample("bitcast", T(dtype="uint8"), "int8", ref=_bitcast),
    Sample("broadcast_to", T(3, 1), (2, 3, 4), ref=torch.broadcast_to),
    Sample("broadcast_to", T(), (2, 2), ref=torch.broadcast_to),
    Sample("broadcast_to", T(1, 3), (0, 3), ref=torch.broadcast_to),
    Sample("broadcast_to", T(2, 3), (2, 3), ref=torch.broadcast_to),
    Sample("broadcast_to_like", T(3, 1), T(2, 3, 4, dtype="int32"), ref=lambda x, like: x.expand(like.shape)),
    Sample("cast", T(2, 3, low=-9, high=9), "int32", ref=_cast, grad=False,
           dtypes=("float32", "float16", "bfloat16", "int64")),
    Sample("cast", T(2, 3), "float64", ref=_cast, dtypes=("float32", "float16")),
    Sample("cast", T(2, 3), "float64", ref=_cast, dtypes=("int32", "bool"), grad=False, id="exact"),
    Sample("cast", T(2, 3), "bfloat16", ref=_cast, dtypes=("float32", "float64")),
    Sample("cast", T(2, 3), "float16", ref=_cast, dtypes=("float32", "bfloat16")),
    Sample("cast", T(4, dtype="int32", low=-1, high=2), "bool", ref=_cast),
    Sample("cast_like", T(2, 3), T(1, dtype="float64"), ref=lambda x, like: x.to(like.dtype),
           dtypes=("float32", "float16")),
    Sample("concatenate", [T(2, 3), T(2, 1), T(2, 3)], axis=1, ref=torch.cat),
    Sample("concatenate", [T(2, 3, 4), T(0, 3, 4)], ref=torch.cat),
    Sample("concatenate", [T(3)], axis=-1, ref=torch.cat),
    Sample("concatenate", [T(1, 2), T(1, 2)], axis=-2, ref=torch.cat),
    Sample("device_copy", T(2, 3), "cpu", ref=lambda x, device: x),
    Sample("expand_dims", T(2, 3), 0, ref=_expand_dims),
    Sample("expand_dims", T(2, 3), (1, -1), ref=_expand_dims),
    Sample("expand_dims", T(), (0, 1), ref=_expand_dims),
    Sample("moveaxis", T(2, 3, 4), 0, -1, ref=torch.movedim),
    Sample("moveaxis", T(2, 3, 4, 1), (0, 1), (2, -1), ref=torch.movedim),
    Sample("reshape", T(2, 6), (3, 4), ref=torch.reshape),
    Sample("reshape", T(2, 6), (2, -1, 3), ref=torch.reshape),
    Sample("reshape", T(1, 1), (), ref=torch.reshape),
    Sample("reshape", T(0, 3), (3, 0, 2), ref=torch.reshape),
    Sample("reshape_like", T(2, 6), T(3, 4, dtype="int32"), ref=lambda x, like: x.reshape(like.shape)),
    Sample("shape", T(2, 0, 3), ref=lambda x: tuple(x.shape)),
    Sample("split", T(6, 2), 3, ref=_split),
    Sample("split", T(2, 5), (1, 1, 4), axis=-1, ref=_split),
    Sample("split", T(2, 3), (), ref=_split),
    Sample("split", T(0, 3), 2, ref=_split),
    Sample("squeeze", T(1, 2, 1), ref=torch.squeeze),
    Sample("squeeze", T(1, 2, 1, 1), (0, -1), ref=torch.squeeze),
    Sample("squeeze", T(2, 3), ref=torch.squeeze),
    Sample("stack", [T(2, 3), T(2, 3)], ref=torch.stack),
    Sample("stack", [T(2), T(2), T(2)], axis=-1, ref=lambda xs, axis: torch.stack(xs, axis)),
    Sample("stack", [T()], ref=torch.stack),
    Sample("stop_gradient", T(2, 3), ref=torch.detach),
    # Its gradient is no derivative of its values; see tests/python/test_writes.py.
    Sample("straight_through", T(2, 3), T(2, 3), ref=lambda x, source: x, grad=False),
    Sample("straight_through", T(), T(), ref=lambda x, source: x, grad=False),
    Sample("swap_axis", T(2, 3, 4), 0, -1, ref=torch.swapaxes),
    Sample("swap_axis", T(), 0, -1, ref=torch.swapaxes),
    Sample("transpose", T(2, 3, 4), ref=_transpose),
    Sample("transpose", T(2, 3, 4, 1), (2, 0, -1, 1), ref=_transpose),
    Sample("transpose", T(), ref=_transpose),
    Sample("transpose", T(0, 3), ref=_transpose),
]  # fmt: skip

ERRORS = [
    ErrorCase("broadcast_to", T(3), (2, 2), error=TypeInferenceError, match="do not broadcast"),
    ErrorCase("broadcast_to", T(2, 3), (3,), error=TypeInferenceError, match="'x' has shape (2, 3)"),
    ErrorCase("broadcast_to_like", T(3), T(2), error=TypeInferenceError, match="do not broadcast"),
    ErrorCase(
        "bitcast",
        T(2),
        "int64",
        error=TypeInferenceError,
        match="x is float32 and dtype int64; expected a dtype of 32 bits",
    ),
    ErrorCase(
        "bitcast",
        T(2),
        "complex64",
        error=TypeInferenceError,
        match="the bits of complex64; expected integers and floats",
    ),
    ErrorCase("cast", T(2), "flaot32", error=ArgumentError, match="did you mean 'float32'"),
    ErrorCase("concatenate", [T(2), 1], error=ArgumentError, match="item 1 is int"),
    ErrorCase("cast", T(2), "float99", error=ArgumentError, match="float99"),
    ErrorCase("concatenate", [], error=TypeInferenceError, match="the list is empty"),
    ErrorCase("concatenate", [T(2), T(2, 1)], error=TypeInferenceError, match="xs[1] has shape (2, 1)"),
    ErrorCase("concatenate", [T(2), T(2, dtype="int32")], error=TypeInferenceError, match="'xs[1]' is int32"),
    ErrorCase("concatenate", [T()], error=TypeInferenceError, match="0-d"),
    ErrorCase("device_copy", T(2), "tpu", error=ArgumentError, match="tpu"),
    ErrorCase("expand_dims", T(2), 3, error=TypeInferenceError, match="axis 3 is out of range"),
    ErrorCase("expand_dims", T(2), (0, -3), error=TypeInferenceError, match="names an axis twice"),
    ErrorCase("moveaxis", T(2, 3), (0, 1), 0, error=TypeInferenceError, match="as many of one as of the other"),
    ErrorCase("reshape", T(2, 3), (4, 2), error=TypeInferenceError, match="(2, 3) has 6 elements, (4, 2) 8"),
    ErrorCase("reshape", T(2, 3), (-1, -1), error=TypeInferenceError, match="2 sizes of -1"),
    ErrorCase("reshape", T(2, 3), (-1, 4), error=TypeInferenceError, match="does not reshape"),
    ErrorCase("split", T(5), 2, error=TypeInferenceError, match="does not split into 2 equal sections"),
    ErrorCase("split", T(5), (3, 2), error=TypeInferenceError, match="ascending"),
    ErrorCase("split", T(5), 0, error=TypeInferenceError, match="0 sections"),
    ErrorCase("split", T(5), 1.5, error=ArgumentError, match="indices_or_sections"),
    ErrorCase("straight_through", T(2), T(3), error=TypeInferenceError, match="one type of both"),
    ErrorCase("squeeze", T(2, 1), 0, error=TypeInferenceError, match="axis 0 of shape"),
    ErrorCase("stack", [T(2), T(3)], error=TypeInferenceError, match="equal shapes"),
    ErrorCase("stack", [T(2)], axis=2, error=TypeInferenceError, match="axis 2 is out of range"),
    ErrorCase("swap_axis", T(2, 3), 0, 2, error=TypeInferenceError, match="axis 2 is out of range"),
    ErrorCase("transpose", T(2, 3), (0, 0), error=TypeInferenceError, match="each axis exactly once"),
    ErrorCase("transpose", T(2, 3), (0,), error=TypeInferenceError, match="each axis exactly once"),
]
