"""Twins of custom operators that libraries of models register with PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import meta
from meta.frontend.torch.aten.linalg import rows_by_group, sums_by_group


def _grouped_mm(input: Any, weight: Any, offs: Any) -> Any:
    return rows_by_group(input, weight, offs)


def _grouped_mm_backward(input: Any, weight: Any, offs: Any, grad_output: Any) -> tuple[Any, Any]:
    back = meta.transpose(weight, (0, 2, 1))
    return rows_by_group(grad_output, back, offs), sums_by_group(meta.transpose(input, (1, 0)), grad_output, offs)


LIBRARY_TWINS: Mapping[str, Callable[..., Any]] = MappingProxyType({
    "transformers::grouped_mm_fallback": _grouped_mm,
    "transformers::grouped_mm_fallback_backward": _grouped_mm_backward,
})  # fmt: skip
"""By "namespace::operator"; parameters have the operators' names."""
