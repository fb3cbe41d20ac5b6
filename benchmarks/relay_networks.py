"""Inference of networks imported from Relay, against the same networks in torch."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import meta
from benchmarks.training_steps import interleaved
from meta.frontend.relay.api import imported
from meta.ir.builder import Module
from meta.ir.expr import Call, Constant, Tuple, Var
from meta.ir.printer import to_array
from meta.op.registry import get
from scripts.relay_corpus import cases, expectations, parameters

NAMES = ("resnet8_cifar", "resnet50", "mobilenet_full")
TOLERANCE = 1e-4
"""Largest difference of torch's result and meta's, of values up to 1."""
Tensor = torch.Tensor
functional = torch.nn.functional


def measure(corpus: Path, name: str, seconds: float) -> dict[str, Any]:
    """Milliseconds of a call and seconds of the first one: meta, meta with TVM's kernels only, torch eager, and torch
    with frozen weights. Raises ValueError if a result differs from meta's."""
    case = next(cases(corpus, [name]))
    program = imported(case.path, parameters(case))
    inputs, _ = expectations(case)
    hosts = [inputs[each] for each in program.inputs]
    arrays, tensors = [meta.array(h) for h in hosts], [torch.from_numpy(h) for h in hosts]
    twin = Twin(program.module)
    executors = {"meta": meta.vm.compile(program.module)}
    with meta.with_dialect(["tvm", "reference"]):
        executors["tvm"] = meta.vm.compile(program.module)
    works: dict[str, Callable[[], Any]] = {}
    first: dict[str, float] = {}
    for key, executor in executors.items():
        start = time.perf_counter()
        results = executor(*arrays)
        first[key] = time.perf_counter() - start
        works[key] = lambda executor=executor: executor(*arrays)
        _check(f"{name} ({key})", results, twin(*tensors))
    works["eager"] = lambda: twin(*tensors)
    frozen = _frozen(twin, tensors)
    works["frozen"] = lambda: frozen(*tensors)
    with torch.inference_mode():
        times = interleaved(list(works.values()), "cpu", seconds)
    return {key: {"ms": value, "first": first.get(key)} for key, value in zip(works, times, strict=True)}


def _check(what: str, results: Any, expected: Tensor) -> None:
    difference = float(np.abs(results[0].numpy() - expected.numpy()).max())
    if not difference <= TOLERANCE:
        raise ValueError(f"{what} differs from torch by {difference}")


def _frozen(twin: torch.nn.Module, tensors: Sequence[Tensor]) -> Callable[..., Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations of torch.jit
        return torch.jit.optimize_for_inference(torch.jit.trace(twin, tuple(tensors)))


class Twin(torch.nn.Module):
    """A module of meta run by torch's functions, one call after the other.

    Raises ValueError for operators and attributes without a rule in `RULES`."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        main = module.main
        self.inputs = list(main.params)
        self.steps: list[tuple[Var, Callable[..., Any], dict[str, Any]]] = []
        self.eval()
        for binding in main.body.bindings:
            self.steps.append((binding.var, *self._step(binding.value)))
        result: Any = main.body.result
        self.result = result.fields[0] if isinstance(result, Tuple) else result

    def _step(self, value: Any) -> tuple[Callable[..., Any], dict[str, Any]]:
        if not isinstance(value, Call) or value.op_name not in RULES:
            raise ValueError(f"no rule for {value}")
        schema = get(value.op_name).schema
        arguments = zip([a.name for a in schema.args], value.args, strict=True)
        return RULES[value.op_name], {name: self._operand(a) for name, a in arguments}

    def _operand(self, atom: Any) -> Any:
        """The tensor of a constant; variables and values of attributes are kept."""
        if isinstance(atom, Constant):
            host = np.array(to_array(atom.value))
            name = f"constant{len(dict(self.named_buffers()))}"
            self.register_buffer(name, torch.from_numpy(host))
            return getattr(self, name)
        return atom

    def forward(self, *tensors: Tensor) -> Tensor:
        values: dict[Any, Tensor] = dict(zip(self.inputs, tensors, strict=True))
        with torch.no_grad():
            for var, function, operands in self.steps:
                values[var] = function(**{n: values[o] if isinstance(o, Var) else o for n, o in operands.items()})
        return values[self.result]


def _conv2d(
    x: Tensor, w: Tensor, stride: Any, padding: Any, dilation: Any, groups: int, channels_last: bool = False
) -> Tensor:
    _check_layout(channels_last)
    return functional.conv2d(x, w, None, stride, _symmetric(padding), dilation, groups)


def _check_layout(channels_last: bool) -> None:
    if channels_last:
        raise ValueError("channels are the last axis")


def _symmetric(padding: Sequence[int]) -> list[int]:
    """Padding of both sides, as torch takes it: one number, or one per axis."""
    if len(padding) < 4:
        return list(padding)
    if padding[:2] != padding[2:]:
        raise ValueError(f"padding {padding} differs on both sides")
    return list(padding[:2])


def _batch_norm(
    x: Tensor, running_mean: Tensor, running_var: Tensor, w: Tensor, b: Tensor, eps: float, axis: int
) -> Tensor:
    if axis != 1:
        raise ValueError(f"batch norm along axis {axis}")
    return functional.batch_norm(x, running_mean, running_var, w, b, eps=eps)


def _max_pool2d(
    x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, channels_last: bool = False
) -> Tensor:
    _check_layout(channels_last)
    return functional.max_pool2d(x, kernel, stride, _symmetric(padding), dilation, ceil_mode)


RULES: dict[str, Callable[..., Tensor]] = {
    "conv2d": _conv2d,
    "batch_norm_infer": _batch_norm,
    "relu": torch.relu,
    "add": lambda x1, x2: torch.add(x1, x2),
    "max_pool2d": _max_pool2d,
    "mean": lambda x, axis, keepdims: torch.mean(x, axis, keepdim=keepdims),
    "reshape": lambda x, shape: torch.reshape(x, shape),
    "dense": lambda x, w, bias: functional.linear(x, w, bias),
    "softmax": lambda x, axis: torch.softmax(x, axis),
}
"""Operators of meta -> functions of torch that take the arguments by the names of the schema."""
