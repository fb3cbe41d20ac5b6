"""meta: an operator registry framework on Apache TVM.

    import meta
    x = meta.array([[1.0, 2.0]])
    x.requires_grad = True
    meta.softmax(x).sum().backward()

Every name is imported at its first use, so that `import meta` takes milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Imported now: importing the module `meta.device` later would replace the function of the same name.
from meta.device import Device as Device
from meta.device import device as device
from meta.lazy import missing as _missing
from meta.lazy import module_exists as _module_exists
from meta.progress import without_collection as _without_collection

__version__ = "0.1.0"

if TYPE_CHECKING:
    from meta import amp as amp
    from meta import array_api as array_api
    from meta import autograd as autograd
    from meta import data as data
    from meta import deploy as deploy
    from meta import distributed as distributed
    from meta import errors as errors
    from meta import fft as fft
    from meta import frontend as frontend
    from meta import inspect as inspect
    from meta import interpreter as interpreter
    from meta import ir as ir
    from meta import linalg as linalg
    from meta import model as model
    from meta import models as models
    from meta import nn as nn
    from meta import op as op
    from meta import ops as ops
    from meta import optim as optim
    from meta import passes as passes
    from meta import profiler as profiler
    from meta import quantize as quantize
    from meta import random as random
    from meta import special as special
    from meta import testing as testing
    from meta import vm as vm
    from meta._generated.functions import *  # noqa: F403
    from meta.autograd.function import Function as Function
    from meta.backend.cuda.memory_pool import device_memory_stats as device_memory_stats
    from meta.backend.cuda.memory_pool import empty_cache as empty_cache
    from meta.backend.cuda.memory_pool import reset_peak_memory as reset_peak_memory
    from meta.backend.cuda.streams import synchronize as synchronize
    from meta.backend.cuda.streams import use_stream as use_stream
    from meta.backend.tvm.devices import is_available as is_available
    from meta.checkpoint.api import load as load
    from meta.checkpoint.api import save as save
    from meta.eager.explain import explain as explain
    from meta.eager.ndarray import NDArray as NDArray
    from meta.eager.ndarray import array as array
    from meta.eager.ndarray import asarray as asarray
    from meta.eager.ndarray import from_dlpack as from_dlpack
    from meta.eager.ndarray import from_numpy as from_numpy
    from meta.frontend.torch import operators as torch  # noqa: F401  # pyright: ignore[reportUnusedImport]
    from meta.functional.activation import *  # noqa: F403
    from meta.functional.attention import *  # noqa: F403
    from meta.functional.compare import *  # noqa: F403
    from meta.functional.ctc import *  # noqa: F403
    from meta.functional.diagonal import *  # noqa: F403
    from meta.functional.differences import *  # noqa: F403
    from meta.functional.distance import *  # noqa: F403
    from meta.functional.dropout import *  # noqa: F403
    from meta.functional.einsum import *  # noqa: F403
    from meta.functional.elementwise import *  # noqa: F403
    from meta.functional.embedding import *  # noqa: F403
    from meta.functional.histogram import *  # noqa: F403
    from meta.functional.image import *  # noqa: F403
    from meta.functional.loss import *  # noqa: F403
    from meta.functional.margin import *  # noqa: F403
    from meta.functional.norm import *  # noqa: F403
    from meta.functional.order_statistics import *  # noqa: F403
    from meta.functional.patches import *  # noqa: F403
    from meta.functional.pool import *  # noqa: F403
    from meta.functional.positions import *  # noqa: F403
    from meta.functional.products import *  # noqa: F403
    from meta.functional.rearrange import *  # noqa: F403
    from meta.functional.resample import *  # noqa: F403
    from meta.functional.scatter import *  # noqa: F403
    from meta.functional.sequences import *  # noqa: F403
    from meta.functional.sets import *  # noqa: F403
    from meta.functional.statistics import *  # noqa: F403
    from meta.model.model import Model as Model
    from meta.modes import enable_grad as enable_grad
    from meta.modes import no_grad as no_grad
    from meta.op.dispatch import dialect as dialect
    from meta.op.dispatch import with_dialect as with_dialect
    from meta.op.user import kernels as kernels
    from meta.op.user.definition import define as define
    from meta.op.user.definition import unregister as unregister
    from meta.op.user.dialects import register_dialect as register_dialect
    from meta.op.user.dialects import unregister_dialect as unregister_dialect
    from meta.profiler.anomaly import detect_anomaly as detect_anomaly
    from meta.tracing import trace as trace
    from meta.tracing.control_flow import cond as cond
    from meta.tracing.control_flow import scan as scan
    from meta.tracing.control_flow import while_loop as while_loop

_HOMES: dict[str, str] = {
    "Function": "meta.autograd.function",
    "NDArray": "meta.eager.ndarray",
    "array": "meta.eager.ndarray",
    "asarray": "meta.eager.ndarray",
    "cond": "meta.tracing.control_flow",
    "define": "meta.op.user.definition",
    "enable_grad": "meta.modes",
    "Model": "meta.model.model",
    "explain": "meta.eager.explain",
    "from_dlpack": "meta.eager.ndarray",
    "from_numpy": "meta.eager.ndarray",
    "load": "meta.checkpoint.api",
    "save": "meta.checkpoint.api",
    "detect_anomaly": "meta.profiler.anomaly",
    "device_memory_stats": "meta.backend.cuda.memory_pool",
    "empty_cache": "meta.backend.cuda.memory_pool",
    "reset_peak_memory": "meta.backend.cuda.memory_pool",
    "synchronize": "meta.backend.cuda.streams",
    "use_stream": "meta.backend.cuda.streams",
    "is_available": "meta.backend.tvm.devices",
    "no_grad": "meta.modes",
    "trace": "meta.tracing",
    "dialect": "meta.op.dispatch",
    "register_dialect": "meta.op.user.dialects",
    "unregister_dialect": "meta.op.user.dialects",
    "with_dialect": "meta.op.dispatch",
    "scan": "meta.tracing.control_flow",
    "unregister": "meta.op.user.definition",
    "while_loop": "meta.tracing.control_flow",
}
_MODULES = frozenset(
    {"amp", "array_api", "autograd", "data", "deploy", "distributed", "errors", "fft", "frontend", "inspect",
     "interpreter", "ir", "linalg", "model", "models", "nn", "op", "ops", "optim", "passes", "profiler", "quantize",
     "random", "special", "testing", "vm"}
)  # fmt: skip

_ROOMS: dict[str, str] = {"kernels": "meta.op.user.kernels", "torch": "meta.frontend.torch.operators"}
"""Packages inside of a room that have a short public name."""


def _import(name: str) -> Any:
    """The value of a public name. Raises AttributeError with near names for others."""
    with _without_collection(lasting=True):
        if name in _MODULES:
            return import_module(f"meta.{name}")
        if name in _ROOMS:
            return import_module(_ROOMS[name])
        value = globals()[name] = getattr(import_module(_HOMES[name]), name) if name in _HOMES else _operator(name)
        return value


def _operator(name: str) -> Any:
    from meta._generated.table import ALIASES, FAMILIES, FUNCTIONS

    if name in FAMILIES or name in ALIASES:
        return getattr(import_module("meta._generated.functions"), name)
    if name in FUNCTIONS:
        from meta.functional._numpy import takes_numpy

        return takes_numpy(getattr(import_module(FUNCTIONS[name]), name))
    if not name.startswith("_") and not _module_exists("meta", name):
        from meta.op import plugins

        plugins.load(plugins.OPERATORS)  # packages that define operators are imported at the first unknown name
        if name in globals():
            return globals()[name]
    return _missing("meta", name)


def __dir__() -> list[str]:
    from meta._generated.table import ALIASES, FAMILIES, FUNCTIONS

    values = dict(globals())  # other threads may import the next name meanwhile
    # Functions and classes: those imported at once, those used before, and operators that the program defined.
    used = [name for name, value in values.items() if str(getattr(value, "__module__", "")).startswith("meta")]
    defined = [name for name, value in values.items() if hasattr(value, "op_name")]
    names = {*_HOMES, *_MODULES, *_ROOMS, *FAMILIES, *ALIASES, *FUNCTIONS, *used, *defined}
    return sorted(name for name in names if not name.startswith("_"))


if not TYPE_CHECKING:
    # Hidden from type checkers, which then report names that do not exist.
    __getattr__ = _import
