"""Optimizers: `meta.optim.SGD(parameters, ...)` for a training loop, `meta.optim.with_optimizer(meta.optim.SGD,
...)(model)` for a training step in one callable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

if TYPE_CHECKING:
    from meta.optim import sgd as sgd
    from meta.optim.adam import Adam as Adam
    from meta.optim.adam import AdamW as AdamW
    from meta.optim.group import ParamGroup as ParamGroup
    from meta.optim.optimizer import Optimizer as Optimizer
    from meta.optim.sgd import SGD as SGD
    from meta.optim.train_step import TrainStep as TrainStep
    from meta.optim.train_step import with_optimizer as with_optimizer
else:
    __getattr__, __dir__ = exports(__name__, {
        "meta.optim": ("sgd",),
        "meta.optim.adam": ("Adam", "AdamW"),
        "meta.optim.group": ("ParamGroup",),
        "meta.optim.optimizer": ("Optimizer",),
        "meta.optim.sgd": ("SGD",),
        "meta.optim.train_step": ("TrainStep", "with_optimizer"),
    })  # fmt: skip
