"""Arguments with which an operator can be tested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meta.errors import MetaError, NotSupportedError
from meta.op.grad.rule import as_tuple
from meta.op.registry import Op

_SHAPES = (((3, 4), (3, 4), (3, 4)), ((3, 4), (4, 5), (5,)), ((3, 4), (4,), (4,)))
_RANGES = ((0.1, 0.9), (1.1, 1.9))


@dataclass(frozen=True, slots=True)
class Arguments:
    """Shapes of the required tensors by their names, and the range of their float32 values."""

    shapes: Mapping[str, tuple[int, ...]]
    low: float
    high: float


def arguments(op: Op) -> Arguments:
    """Arguments that the operator accepts, with finite results, found by calling it.

    Raises NotSupportedError if it needs other arguments than a few floating tensors."""
    required = [arg for arg in op.schema.args if arg.required]
    if not required or len(required) > 3 or any(arg.type.role not in ("tensor", "scalar") for arg in required):
        raise NotSupportedError("op new", f"{op.name} needs arguments other than one to three tensors")
    for shapes in _SHAPES:
        by_name = {arg.name: shape for arg, shape in zip(required, shapes, strict=False)}
        for low, high in _RANGES:
            if _is_finite(op, by_name, low, high):
                return Arguments(by_name, low, high)
    raise NotSupportedError("op new", f"{op.name} takes no float32 tensors of shapes such as (3, 4)")


def _is_finite(op: Op, shapes: Mapping[str, tuple[int, ...]], low: float, high: float) -> bool:
    """Whether the operator accepts such tensors and returns finite numbers."""
    import numpy as np

    import meta

    rng = np.random.default_rng(0)
    tensors = [meta.array(rng.uniform(low, high, shape).astype("float32")) for shape in shapes.values()]
    try:
        result: Any = getattr(meta, op.name)(*tensors)
    except MetaError:
        return False
    return all(bool(np.isfinite(r.numpy()).all()) for r in as_tuple(result))
