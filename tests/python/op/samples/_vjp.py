"""References of backward operators: torch's own derivative of the forward function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def pulled_back(function: Callable[[Any], Any], x: Any, dy: Any) -> Any:
    """The gradient of `function` at x for the gradient dy of its result, itself differentiable."""
    with torch.enable_grad():
        point = x if x.requires_grad else x.detach().requires_grad_()
        return torch.autograd.grad(function(point), point, dy, create_graph=True)[0]


def transposed(function: Callable[[Any], Any], shape: tuple[int, ...], dy: Any) -> Any:
    """The same of a linear function of a tensor of `shape`."""
    return pulled_back(function, torch.zeros(shape, dtype=dy.dtype), dy)
