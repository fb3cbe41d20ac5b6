"""Samples of collectives with one rank, which are identities; tests/python/distributed has several."""

from __future__ import annotations

from typing import Any

import torch

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T


def _identity(x: Any, *_: Any, **__: Any) -> Any:
    return x.clone()


SAMPLES = [
    Sample("all_gather", T(2, 3), 1, ref=_identity),
    Sample("all_reduce", T(2, 3), ref=_identity),
    Sample("all_reduce", T(3, dtype="int32"), "max", ref=_identity),
    Sample("all_reduce", T(2, 3), "product", ref=_identity, id="product"),
    Sample("all_reduce_when", T(2, 3), T(dtype="bool"), "mean", ref=_identity),
    Sample("all_to_all", T(2, 3), 0, 1, ref=_identity),
    Sample("barrier", T(2, 3), ref=_identity),
    Sample("broadcast_from", T(2, 3), ref=_identity),
    Sample("group_rank", ref=lambda *_, **__: torch.tensor(0)),
    Sample("reduce_scatter", T(2, 3), 1, "mean", ref=_identity),
    Sample("reduce_to", T(2, 3), ref=_identity),
    Sample("send_receive", T(2, 3), ((0, 0),), ref=_identity),
    Sample("send_receive", T(2, 3), (), ref=lambda x, *_: torch.zeros_like(x), id="nothing"),
]

ERRORS = [
    ErrorCase("all_gather", T(), match="the tensor is 0-d", error=TypeInferenceError),
    ErrorCase("all_reduce", T(2, dtype="bool"), match="'x' has dtype bool", error=TypeInferenceError),
    ErrorCase("all_reduce", T(2, dtype="int32"), "mean", match="'x' has dtype int32", error=TypeInferenceError),
    ErrorCase("all_reduce", T(2), "sum", "world", 0, match="ranks is 0", error=TypeInferenceError),
    ErrorCase(
        "all_reduce_when",
        T(2),
        T(2, dtype="bool"),
        error=TypeInferenceError,
        match="'when' has dtype bool and shape (2,)",
    ),
    ErrorCase("broadcast_from", T(2), 1, match="source is 1 in a group of 1", error=TypeInferenceError),
    ErrorCase("reduce_scatter", T(3), 0, "sum", "world", 2, match="2 ranks do not divide", error=TypeInferenceError),
    ErrorCase("send_receive", T(2), ((0, 1), (0, 0)), "world", 2, match="sends 2 times", error=TypeInferenceError),
]
