"""The elementwise calls that are judged, from the samples of the operators, and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from mpmath import mpf

import meta
from meta import dtype as dtypes
from meta.autograd import jvp, vjp
from meta.errors import MetaError
from meta.ir.type import TensorType, tensor_type
from meta.op.grad.rule import gradient_rule
from meta.testing.arrays import to_numpy, to_torch
from meta.testing.derivatives import differentiable_positions, is_differentiable
from meta.testing.samples import Sample, T, _Typed, leaves
from tests.python.op.samples import samples
from tests.python.singular.points import points
from tests.python.singular.truth import DERIVATIVES, TRUTHS

Results = dict[str, Any]
"""The value ("value"), derivatives by operand ("d0") and second derivatives ("d0d1"); None where there is none."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A sample whose tensors, all floating, take the values of the points.

    names: of the tensors.  differentiable: which of them have a gradient."""

    sample: Sample
    names: tuple[str, ...]
    differentiable: tuple[int, ...]

    def __str__(self) -> str:
        rest = [str(a) for a in self.sample.args if not isinstance(a, T)]
        rest += [f"{k}={v}" for k, v in self.sample.kwargs.items() if not isinstance(v, T)]
        return f"{self.sample.op}({', '.join([*self.names, *rest])})"

    def numbers(self) -> list[float]:
        """The numbers among the attributes, which may be singular points, of both signs."""
        values = [*self.sample.args, *self.sample.kwargs.values()]
        plain = [float(v) for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
        return [*plain, *(-n for n in plain)]

    def filled(self, tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with these in place of the tensors."""
        rest = iter(tensors)
        args = [next(rest) if isinstance(a, T) else a for a in self.sample.args]
        return args, {k: next(rest) if isinstance(v, T) else v for k, v in self.sample.kwargs.items()}

    def truths(self) -> list[Callable[..., Any]]:
        """The function of mpf numbers, if it is known, and its derivatives, if they have formulas."""
        op = self.sample.op
        return [self._of_numbers(f) for f in (TRUTHS.get(op), *DERIVATIVES.get(op, ())) if f is not None]

    def _of_numbers(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*numbers: Any) -> Any:
            args, kwargs = self.filled(numbers)
            return function(*(mpf(a) if isinstance(a, float) else a for a in args), **kwargs)

        return run

    def operands(self, dtype: str, small: bool) -> list[Any]:
        """The values of each tensor at all points."""
        tuples = points(self.names, dtype, self.numbers(), small)
        if self.sample.op == "binary_cross_entropy":  # of probabilities; its gradient divides by at least 1e-12
            tuples = [t for t in tuples if 1e-12 < t[0] < 1]
        with np.errstate(over="ignore"):
            return [np.array(c, np.float64).astype(dtypes.to_numpy(dtype)) for c in zip(*tuples, strict=True)]

    def run(self, *xs: Any) -> Any:
        """meta's call."""
        args, kwargs = self.filled(xs)
        return getattr(meta, self.sample.op)(*args, **kwargs)

    def run_torch(self, *xs: Any) -> Any:
        """torch's call."""
        args, kwargs = self.filled(xs)
        assert self.sample.ref is not None
        return self.sample.ref(*args, **kwargs)


def variants() -> Iterator[Variant]:
    """The differentiable elementwise calls among the samples, each once. Backward operators are judged by the second
    derivatives of their forward operators."""
    seen: set[str] = set()
    for sample in samples():
        schema, tensors = sample.operator.schema, leaves(sample.args, sample.kwargs)
        if sample.ref is None or "dy" in schema.index or not tensors or any(t.dtype != "float32" for t in tensors):
            continue
        if not _is_elementwise(sample) or not is_differentiable(sample):
            continue
        rule = gradient_rule(sample.op)
        allowed = differentiable_positions(rule) if rule else []
        positions = [i for i, a in enumerate(sample.args) if isinstance(a, T)]
        positions += [schema.names.index(k) for k, v in sample.kwargs.items() if isinstance(v, T)]
        wanted = tuple(k for k, position in enumerate(positions) if position in allowed)
        variant = Variant(sample, tuple(schema.names[p] for p in positions), wanted)
        if str(variant) not in seen:
            seen.add(str(variant))
            yield variant


def _is_elementwise(sample: Sample) -> bool:
    """Whether the result for vectors is a vector, with one element from each element of theirs."""
    op, length = sample.operator, 7
    unreduced = any(isinstance(v, str) and v == "none" for v in (*sample.args, *sample.kwargs.values()))
    if op.no_compute or not (op.pattern in ("elemwise", "broadcast") or unreduced):
        return False
    args, kwargs = sample.map(lambda t, _: _Typed(tensor_type((length,), t.dtype)))
    try:
        result = op.infer(op.schema.bind(op.name, args, kwargs))
    except MetaError:
        return False
    return isinstance(result, TensorType) and result.shape == (length,)


def meta_results(variant: Variant, operands: Sequence[Any], mode: str) -> Results:
    """meta's results: "eager", in the dialect "reference", in a program ("vm"), or in forward mode ("jvp", without
    second derivatives)."""
    arrays = [meta.array(a) for a in operands]
    if mode == "jvp":
        return _forward_mode(variant, arrays)
    if mode == "vm":
        names: list[str] = []

        def program(*xs: Any) -> Any:
            results = _pulled_back(variant, xs)
            names[:] = results
            return tuple(results.values())

        outputs = meta.vm.compile(meta.trace(program))(*arrays)
        return {name: _host(value) for name, value in zip(names, outputs, strict=True)}
    for a in arrays:
        a.requires_grad = True
    with nullcontext() if mode == "eager" else meta.with_dialect([mode]):
        return _recorded(variant.run, arrays, variant.differentiable, _meta_grad)


def torch_results(variant: Variant, operands: Sequence[Any], wide: bool) -> Results:
    """torch's results, in float64 if `wide`: as far as it has kernels and derivatives."""
    tensors = [to_torch(a.astype(np.float64) if wide else a) for a in operands]
    for i in variant.differentiable:
        tensors[i].requires_grad_()
    for order in (2, 1):
        try:
            return _recorded(variant.run_torch, tensors, variant.differentiable, _torch_grad, order)
        except (RuntimeError, NotImplementedError):
            continue
    return {}


def _host(x: Any) -> Any:
    return to_numpy(x).astype(np.float64)


def _recorded(
    call: Callable[..., Any], xs: Sequence[Any], wanted: Sequence[int], grad: Callable[..., Any], order: int = 2
) -> Results:
    """Results by the tape, with derivatives up to `order`."""
    y = call(*xs)
    results: Results = {"value": _host(y)}
    inputs = [xs[i] for i in wanted]
    for i, g in zip(wanted, grad(y, inputs), strict=True):
        results[f"d{i}"] = None if g is None else _host(g)
        if order == 2 and g is not None and g.requires_grad:
            seconds = zip(wanted, grad(g, inputs), strict=True)
            results |= {f"d{i}d{j}": None if gg is None else _host(gg) for j, gg in seconds}
    return results


def _meta_grad(y: Any, xs: list[Any]) -> Any:
    return meta.autograd.grad(y, xs, meta.ones_like(y), create_graph=True, allow_unused=True)


def _torch_grad(y: Any, xs: list[Any]) -> Any:
    if not y.requires_grad:
        return [None] * len(xs)
    return torch.autograd.grad(y, xs, torch.ones_like(y), create_graph=True, allow_unused=True)


def _forward_mode(variant: Variant, arrays: Sequence[Any]) -> Results:
    results: Results = {}
    for i in variant.differentiable:

        def of_one(x: Any, i: int = i) -> Any:
            return variant.run(*(x if k == i else a for k, a in enumerate(arrays)))

        y, tangent = jvp(of_one, (arrays[i],), (meta.ones_like(arrays[i]),))
        results |= {"value": _host(y), f"d{i}": _host(tangent)}
    return results


def _pulled_back(variant: Variant, xs: Sequence[Any]) -> Results:
    """Results by function transformations, in a trace."""

    def slope(i: int) -> Callable[..., Any]:
        def run(*xs: Any) -> Any:
            y, pullback = vjp(variant.run, *xs)
            return pullback(meta.ones_like(y))[i]

        return run

    results: Results = {"value": variant.run(*xs)}
    for i in variant.differentiable:
        first, pullback = vjp(slope(i), *xs)
        seconds = pullback(meta.ones_like(first))
        results |= {f"d{i}": first, **{f"d{i}d{j}": seconds[j] for j in variant.differentiable}}
    return results
