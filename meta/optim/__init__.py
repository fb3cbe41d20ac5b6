"""Optimizers: `meta.optim.SGD(parameters, ...)` for a training loop, `meta.optim.sgd.with_sgd(...)(model)` for a
training step in one callable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

if TYPE_CHECKING:
    from meta.optim import sgd as sgd
    from meta.optim.optimizer import Optimizer as Optimizer
    from meta.optim.optimizer import TrainStep as TrainStep
    from meta.optim.sgd import SGD as SGD
else:
    __getattr__, __dir__ = exports(__name__, {
        "meta.optim": ("sgd",),
        "meta.optim.optimizer": ("Optimizer", "TrainStep"),
        "meta.optim.sgd": ("SGD",),
    })  # fmt: skip
