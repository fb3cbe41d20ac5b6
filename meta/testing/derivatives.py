"""Gradients of samples: against finite differences, against torch, and of second order."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from meta import dtype as dtypes
from meta.autograd.finite_differences import gradcheck, gradgradcheck
from meta.eager.engine import grad
from meta.eager.ndarray import NDArray, array, asarray
from meta.op.grad.rule import GradRule, gradient_rules
from meta.testing.arrays import to_numpy, to_torch
from meta.testing.call import Call, flat_results
from meta.testing.generic import call_of, tolerance_of, wide
from meta.testing.samples import Sample, leaves
from meta.testing.tolerance import compare

if TYPE_CHECKING:
    import torch


def is_differentiable(sample: Sample) -> bool:
    """Whether the row has gradients to test: it says so, or its operator has them for one of its floating tensors."""
    if sample.grad is not None:
        return sample.grad
    rule = gradient_rules().get(sample.op)
    if rule is None or sample.check is not None:
        return False
    index = sample.operator.schema.index
    places = [*enumerate(sample.args), *((index[k], v) for k, v in sample.kwargs.items())]
    return any(at in flowing(rule) and any(t.dtype == "float32" for t in leaves((v,), {})) for at, v in places)


def flowing(rule: GradRule) -> list[int]:
    """Schema positions of the arguments that have a gradient."""
    return [at for at in rule.differentiable if at not in rule.unavailable]


def wanted(call: Call) -> list[int]:
    """Which of `call.arrays()` gradients are asked for."""
    rule = gradient_rules().get(call.op.name)
    positions = flowing(rule) if rule is not None else []
    pairs = zip(call.arrays(), call.positions(), strict=True)
    return [i for i, (a, at) in enumerate(pairs) if at in positions and dtypes.is_float(str(a.dtype))]


def check_gradient(sample: Sample, dtype: str = "float32") -> None:
    """The gradients of random cotangents agree with those of the reference in torch."""
    host = call_of(sample, dtype)
    at = wanted(host)
    assert at, f"{sample!r} has no argument with a gradient"
    call = host.to_meta()
    arrays = call.arrays()
    for i in at:
        arrays[i].requires_grad = True
    results = [r for r in flat_results(call.run()) if isinstance(r, NDArray)]
    used = [i for i, r in enumerate(results) if r.requires_grad]
    assert used, f"{sample!r}: no result is connected to the arguments"
    dys = {i: cotangent(sample, i, results[i]) for i in used}
    found = grad([results[i] for i in used], [arrays[i] for i in at], [array(dys[i]) for i in used], allow_unused=True)
    exact = _torch_gradients(sample, host, at, dys, True)
    assert exact is not None
    theirs = _torch_gradients(sample, host, at, dys, False) or exact
    rtol, atol = tolerance_of(sample, dtype)
    for i, ours, reference, oracle in zip(at, found, theirs, exact, strict=True):
        what = f"{sample.op}: gradient of array {i}"
        expected = reference.astype(dtypes.to_numpy(arrays[i].dtype))
        if ours is None:
            assert not oracle.any(), f"{what} is missing"
            continue
        assert ours.type is arrays[i].type, f"{what} is {ours.type!r}, the array {arrays[i].type!r}"
        compare(what, to_numpy(ours), expected, oracle=oracle, tolerance=(4 * rtol, 4 * atol))


def cotangent(sample: Sample, index: int, result: NDArray) -> Any:
    import numpy as np

    rng = np.random.default_rng(zlib.crc32(f"{sample!r}/dy{index}".encode()))
    return np.asarray(rng.uniform(-1, 1, result.shape)).astype(dtypes.to_numpy(result.dtype))


def _torch_gradients(
    sample: Sample, host: Call, at: Sequence[int], dys: dict[int, Any], exact: bool
) -> list[Any] | None:
    """The reference's gradients (zeros where it has none); None where torch lacks a kernel for the dtype."""
    import torch

    tensors = [to_torch(wide(a) if exact else a) for a in host.arrays()]
    for i in at:
        tensors[i].requires_grad_()
    assert sample.ref is not None
    try:
        with torch.enable_grad():
            results = flat_results(host.with_arrays(tensors).apply(sample.ref))
        pairs = [(results[i], _like(dy, results[i])) for i, dy in dys.items() if _connected(results[i])]
        if not pairs:
            return [wide(host.arrays()[i]) * 0 for i in at]
        found: Any = torch.autograd.grad(
            [r for r, _ in pairs], [tensors[i] for i in at], [d for _, d in pairs], allow_unused=True
        )
    except (RuntimeError, NotImplementedError):
        if exact:
            raise
        return None
    return [to_numpy(torch.zeros_like(tensors[i]) if g is None else g) for i, g in zip(at, found, strict=True)]


def _connected(result: Any) -> bool:
    return getattr(result, "requires_grad", False)


def _like(dy: Any, result: torch.Tensor) -> torch.Tensor:
    return to_torch(wide(dy)).to(result.dtype)


def check_finite_differences(sample: Sample) -> None:
    """The gradients agree with central differences in float64."""
    call, at = _float64_leaves(sample)
    gradcheck(_function(call), call.arrays())
    assert at


def check_second_order(sample: Sample) -> None:
    """The gradients of the gradients agree with central differences in float64."""
    call, at = _float64_leaves(sample)
    assert at
    gradgradcheck(_function(call), call.arrays())


def _float64_leaves(sample: Sample) -> tuple[Call, list[int]]:
    host = call_of(sample, "float64")
    at = wanted(host)
    arrays = [asarray(wide(a) if i in at else a, copy=True) for i, a in enumerate(host.arrays())]
    for i in at:
        arrays[i].requires_grad = True
    return host.with_arrays(arrays), at


def _function(call: Call) -> Any:
    """The call as a function of its arrays that changes none of them, and of its results gives those with gradients."""
    rule, index = gradient_rules()[call.op.name], call.op.schema.index
    overwritten = {index[name] for name in call.op.inplace.values()}
    copied = [at in overwritten for at in call.positions()]

    def run(*arrays: NDArray) -> Any:
        mine = [asarray(a, copy=True) if copy else a for a, copy in zip(arrays, copied, strict=True)]
        results = call.with_arrays(mine).run()
        if rule.outputs <= 1:
            return results
        return tuple(r for i, r in enumerate(results) if i in rule.differentiable_outputs)

    return run
