"""Optimizers: `meta.optim.SGD(parameters, ...)` for a training loop, `meta.optim.with_optimizer(meta.optim.SGD,
...)(model)` for a training step in one callable; schedules of learning rates, and clipping of gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

if TYPE_CHECKING:
    from meta.optim import sgd as sgd
    from meta.optim.adafactor import Adafactor as Adafactor
    from meta.optim.adagrad import Adagrad as Adagrad
    from meta.optim.adam import Adam as Adam
    from meta.optim.adam import AdamW as AdamW
    from meta.optim.adam_variants import NAdam as NAdam
    from meta.optim.adam_variants import RAdam as RAdam
    from meta.optim.average import EMA as EMA
    from meta.optim.average import SWA as SWA
    from meta.optim.average import WeightAverage as WeightAverage
    from meta.optim.clip import clip_grad_norm as clip_grad_norm
    from meta.optim.clip import clip_grad_value as clip_grad_value
    from meta.optim.clip import grad_norm as grad_norm
    from meta.optim.formula import FormulaOptimizer as FormulaOptimizer
    from meta.optim.group import ParamGroup as ParamGroup
    from meta.optim.lamb import LAMB as LAMB
    from meta.optim.lamb import LANS as LANS
    from meta.optim.lion import Lion as Lion
    from meta.optim.muon import Muon as Muon
    from meta.optim.one_cycle import OneCycleLR as OneCycleLR
    from meta.optim.optimizer import Optimizer as Optimizer
    from meta.optim.plateau import ReduceLROnPlateau as ReduceLROnPlateau
    from meta.optim.rmsprop import RMSprop as RMSprop
    from meta.optim.schedule import ChainedScheduler as ChainedScheduler
    from meta.optim.schedule import CosineAnnealingLR as CosineAnnealingLR
    from meta.optim.schedule import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
    from meta.optim.schedule import ExponentialLR as ExponentialLR
    from meta.optim.schedule import LambdaLR as LambdaLR
    from meta.optim.schedule import LinearLR as LinearLR
    from meta.optim.schedule import MultiStepLR as MultiStepLR
    from meta.optim.schedule import Schedule as Schedule
    from meta.optim.schedule import SequentialLR as SequentialLR
    from meta.optim.schedule import StepLR as StepLR
    from meta.optim.sgd import SGD as SGD
    from meta.optim.train_step import TrainStep as TrainStep
    from meta.optim.train_step import with_optimizer as with_optimizer
else:
    __getattr__, __dir__ = exports(__name__, {
        "meta.optim": ("sgd",),
        "meta.optim.adafactor": ("Adafactor",),
        "meta.optim.adagrad": ("Adagrad",),
        "meta.optim.adam": ("Adam", "AdamW",),
        "meta.optim.adam_variants": ("NAdam", "RAdam",),
        "meta.optim.average": ("EMA", "SWA", "WeightAverage",),
        "meta.optim.clip": ("clip_grad_norm", "clip_grad_value", "grad_norm",),
        "meta.optim.formula": ("FormulaOptimizer",),
        "meta.optim.group": ("ParamGroup",),
        "meta.optim.lamb": ("LAMB", "LANS",),
        "meta.optim.lion": ("Lion",),
        "meta.optim.muon": ("Muon",),
        "meta.optim.one_cycle": ("OneCycleLR",),
        "meta.optim.optimizer": ("Optimizer",),
        "meta.optim.plateau": ("ReduceLROnPlateau",),
        "meta.optim.rmsprop": ("RMSprop",),
        "meta.optim.schedule": (
            "ChainedScheduler", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "ExponentialLR", "LambdaLR",
            "LinearLR", "MultiStepLR", "Schedule", "SequentialLR", "StepLR",
        ),
        "meta.optim.sgd": ("SGD",),
        "meta.optim.train_step": ("TrainStep", "with_optimizer",),
    })  # fmt: skip
