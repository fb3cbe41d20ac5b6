"""Samples of operators that repeat, reorder, frame or mask the elements along axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from meta.errors import ArgumentError, TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T


def _flip(x: Any, axis: Any = None) -> Any:
    return torch.flip(x, tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis)


def _pad(x: Any, pad_width: Any, pad_value: float = 0.0) -> Any:
    flat = not pad_width or isinstance(pad_width[0], int)
    pairs = list(zip(pad_width[::2], pad_width[1::2], strict=True)) if flat else pad_width
    return torch.nn.functional.pad(x, [w for pair in reversed(pairs) for w in pair], value=pad_value) if pairs else x


def _extended(x: Any, pad_width: Any, pad_value: float, mode: str) -> Any:
    for axis, pair in enumerate(pad_width):
        before, after = (max(width, 0) for width in pair)
        places = np.pad(np.arange(x.shape[axis]), (before, after), mode)
        x = x.index_select(axis, torch.from_numpy(places[max(-pair[0], 0) : len(places) - max(-pair[1], 0)]))
    return x


def _cropped(x: Any, pad_width: Any, pad_value: float, mode: str) -> Any:
    widths = [w for pair in reversed(pad_width) for w in pair]
    return torch.nn.functional.pad(x[None, None], widths, {"edge": "replicate", "wrap": "circular"}[mode])[0, 0]


def _repeat(x: Any, repeats: int, axis: int | None = None) -> Any:
    return torch.repeat_interleave(x, repeats, axis)


def _tile(x: Any, reps: Any) -> Any:
    return torch.tile(x, (reps,) if isinstance(reps, int) else reps)


SAMPLES = [
    Sample("flip", T(2, 3), ref=_flip),
    Sample("flip", T(2, 3, 4), (0, -1), ref=_flip),
    Sample("flip", T(), ref=_flip),
    Sample("flip", T(0, 2), 1, ref=_flip),
    Sample("pad", T(2, 3), ((1, 0), (2, 3)), 1.0, ref=_pad),
    Sample("pad", T(2), (0, 2), ref=_pad),
    Sample("pad", T(0, 2), (1, 1, 0, 0), -2.5, ref=_pad),
    Sample("pad", T(), (), ref=_pad),
    *(Sample("pad", T(2, 4), ((1, 0), (3, 2)), 0.0, mode, ref=_extended) for mode in ("edge", "reflect", "symmetric")),
    Sample("pad", T(3, 4), ((-1, 2), (1, -2)), 1.5, ref=_pad),
    *(Sample("pad", T(2, 4), ((1, 0), (-1, 2)), 0.0, mode, ref=_cropped) for mode in ("edge", "wrap")),
    *(Sample("pad", T(2, 4), ((-1, 1), (3, -2)), 0.0, mode, ref=_extended) for mode in ("edge", "reflect")),
    Sample("pad", T(2, 4), ((-2, 2), (2, -4)), 0.0, "symmetric", ref=_extended),
    Sample("repeat", T(2, 3), 2, ref=_repeat),
    Sample("repeat", T(2, 3), 3, axis=-1, ref=_repeat),
    Sample("repeat", T(2, 3), 0, axis=0, ref=_repeat),
    Sample("repeat", T(), 3, ref=_repeat),
    Sample("roll", T(2, 3), (1, -2), (0, 1), ref=torch.roll),
    Sample("roll", T(5), 7, 0, ref=torch.roll),
    Sample("roll", T(2, 0), 1, -1, ref=torch.roll),
    Sample("tile", T(2, 3), (2, 2), ref=_tile),
    Sample("tile", T(2, 1), 3, ref=_tile),
    Sample("tile", T(2), (2, 1, 2), ref=_tile),
    Sample("tile", T(), (2,), ref=_tile),
    Sample("tile", T(2, 3), (0, 1), ref=_tile),
    Sample("tril", T(3, 4), ref=torch.tril),
    Sample("tril", T(2, 3, 3), 1, ref=torch.tril),
    Sample("tril", T(0, 3), ref=torch.tril),
    Sample("triu", T(4, 3), ref=torch.triu),
    Sample("triu", T(2, 3, 3), k=-1, ref=lambda x, k: torch.triu(x, k)),
]

ERRORS = [
    ErrorCase("flip", T(2), 1, error=TypeInferenceError, match="axis 1 is out of range"),
    ErrorCase("pad", T(2, 3), (1, 1), error=TypeInferenceError, match="2 pairs (before, after)"),
    ErrorCase("pad", T(2), (-3, 2), error=TypeInferenceError, match="(-3, 2) for an axis of 2 elements"),
    ErrorCase("pad", T(3), (3, -1), 0.0, "wrap", error=TypeInferenceError, match="up to 2"),
    ErrorCase("pad", T(2), (2, 0), 0.0, "reflect", error=TypeInferenceError, match="up to 1"),
    ErrorCase("pad", T(0), (1, 0), 0.0, "edge", error=TypeInferenceError, match="something to repeat"),
    ErrorCase("pad", T(2), 1, error=ArgumentError, match="(before, after) ints"),
    ErrorCase("pad", T(2), (1, 2, 3), error=ArgumentError, match="an even number"),
    ErrorCase("repeat", T(2), -1, error=TypeInferenceError, match="repeats is -1"),
    ErrorCase("repeat", T(2), 2, 1, error=TypeInferenceError, match="axis 1 is out of range"),
    ErrorCase("roll", T(2, 3), (1, 2), 0, error=TypeInferenceError, match="one shift for each axis"),
    ErrorCase("roll", T(2, 3), (1, 2), (0, 0), error=TypeInferenceError, match="names an axis twice"),
    ErrorCase("tile", T(2), (-1,), error=TypeInferenceError, match="reps is"),
    ErrorCase("tril", T(2), error=TypeInferenceError, match="at least two axes"),
    ErrorCase("triu", T(2), error=TypeInferenceError, match="at least two axes"),
]
