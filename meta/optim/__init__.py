"""Optimizers: `meta.optim.SGD(parameters, ...)` for a training loop, `meta.optim.sgd.with_sgd(...)(model)` for a
training step in one callable."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meta.optim import sgd as sgd
    from meta.optim.optimizer import Optimizer as Optimizer
    from meta.optim.optimizer import TrainStep as TrainStep
    from meta.optim.sgd import SGD as SGD

_HOMES = {"Optimizer": "meta.optim.optimizer", "TrainStep": "meta.optim.optimizer", "SGD": "meta.optim.sgd"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "sgd":
        return import_module("meta.optim.sgd")
    raise AttributeError(f"module 'meta.optim' has no attribute {name!r}")
