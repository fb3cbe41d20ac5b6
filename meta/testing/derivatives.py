"""Checks of gradients of samples: against finite differences, against torch, and second order."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from meta import dtype as dtypes
from meta.autograd.finite_differences import gradcheck, gradgradcheck
from meta.autograd.transforms import jvp
from meta.eager.engine import grad
from meta.eager.ndarray import NDArray, array, asarray
from meta.op.grad.rule import GradRule, as_tuple, gradient_rule
from meta.testing.arrays import to_numpy, to_torch
from meta.testing.call import OperatorCall, flat_results
from meta.testing.generic import make_call, to_float64, tolerance_of
from meta.testing.samples import Sample, leaves
from meta.testing.tolerance import compare

if TYPE_CHECKING:
    import torch


# Inputs move as a whole: the cost does not grow with their elements. An error in one of a hundred elements shows only
# within narrow bounds, which central differences keep: they are right to about 1e-9.
_DIRECTIONS, _RTOL, _ATOL = 4, 1e-6, 1e-6


def is_differentiable(sample: Sample) -> bool:
    """Whether the sample has gradients to test: it declares so, or its operator has one for a floating tensor of it."""
    if sample.grad is not None:
        return sample.grad
    rule = gradient_rule(sample.op)
    if rule is None or sample.check is not None:
        return False
    index = sample.operator.schema.index
    arguments = [*enumerate(sample.args), *((index[k], v) for k, v in sample.kwargs.items())]
    differentiable = [value for i, value in arguments if i in differentiable_positions(rule)]
    return any(t.dtype == "float32" for t in leaves(differentiable, {}))


def differentiable_positions(rule: GradRule) -> list[int]:
    """Schema positions of the arguments that have a gradient."""
    return [i for i in rule.differentiable if i not in rule.unavailable]


def gradient_inputs(call: OperatorCall) -> list[int]:
    """Indices into `call.arrays()` of the floating arrays that have a gradient."""
    rule = gradient_rule(call.op.name)
    positions = differentiable_positions(rule) if rule is not None else []
    pairs = zip(call.arrays(), call.positions(), strict=True)
    return [i for i, (a, position) in enumerate(pairs) if position in positions and dtypes.is_float(str(a.dtype))]


def check_gradient(
    sample: Sample, dtype: str = "float32", run: Callable[[OperatorCall], Any] = OperatorCall.run
) -> None:
    """Gradients for random cotangents agree with the torch reference. run: what computes the results."""
    host = make_call(sample, dtype)
    inputs = gradient_inputs(host)
    assert inputs, f"{sample!r} has no argument with a gradient"
    call = host.to_meta()
    arrays = call.arrays()
    for i in inputs:
        arrays[i].requires_grad = True
    results = [r for r in flat_results(run(call)) if isinstance(r, NDArray)]
    used = [i for i, r in enumerate(results) if r.requires_grad]
    assert used, f"{sample!r}: no result is connected to the arguments"
    dys = {i: cotangent(sample, i, results[i]) for i in used}
    cotangents = [array(dys[i]) for i in used]
    gradients = grad([results[i] for i in used], [arrays[i] for i in inputs], cotangents, allow_unused=True)
    exact = _torch_gradients(sample, host, inputs, dys, True)
    assert exact is not None
    theirs = _torch_gradients(sample, host, inputs, dys, False) or exact
    rtol, atol = tolerance_of(sample, dtype)
    for i, ours, reference, oracle in zip(inputs, gradients, theirs, exact, strict=True):
        what = f"{sample.op}: gradient of array {i}"
        expected = reference.astype(dtypes.to_numpy(arrays[i].dtype))
        if ours is None:
            assert not oracle.any(), f"{what} is missing"
            continue
        assert ours.type is arrays[i].type, f"{what} is {ours.type!r}, the array {arrays[i].type!r}"
        compare(what, to_numpy(ours), expected, oracle=oracle, tolerance=(4 * rtol, 4 * atol))


def cotangent(sample: Sample, index: int, result: NDArray) -> Any:
    """A random cotangent of a result; it depends only on the sample and the result's index."""
    import numpy as np

    rng = np.random.default_rng(zlib.crc32(f"{sample!r}/dy{index}".encode()))
    return np.asarray(rng.uniform(-1, 1, result.shape)).astype(dtypes.to_numpy(result.dtype))


def _torch_gradients(
    sample: Sample, host: OperatorCall, inputs: Sequence[int], dys: dict[int, Any], exact: bool
) -> list[Any] | None:
    """The gradients of the reference, zeros without a gradient; None if torch lacks a kernel for the dtype."""
    import torch

    tensors = [to_torch(to_float64(a) if exact else a) for a in host.arrays()]
    for i in inputs:
        tensors[i].requires_grad_()
    assert sample.ref is not None
    try:
        with torch.enable_grad():
            results = flat_results(host.with_arrays(tensors).apply(sample.ref))
        pairs = [(results[i], _torch_cotangent(dy, results[i])) for i, dy in dys.items() if _requires_grad(results[i])]
        if not pairs:
            return [to_float64(host.arrays()[i]) * 0 for i in inputs]
        gradients: Any = torch.autograd.grad(
            [r for r, _ in pairs], [tensors[i] for i in inputs], [d for _, d in pairs], allow_unused=True
        )
    except (RuntimeError, NotImplementedError):
        if exact:
            raise
        return None
    return [to_numpy(torch.zeros_like(tensors[i]) if g is None else g) for i, g in zip(inputs, gradients, strict=True)]


def _requires_grad(result: object) -> bool:
    return getattr(result, "requires_grad", False)


def _torch_cotangent(dy: object, result: torch.Tensor) -> torch.Tensor:
    return to_torch(to_float64(dy)).to(result.dtype)


def check_finite_differences(sample: Sample) -> None:
    """The gradients agree with central differences in float64."""
    call, inputs = _float64_leaves(sample)
    gradcheck(pure_function(call), call.arrays(), rtol=_RTOL, atol=_ATOL, directions=_DIRECTIONS)
    assert inputs


def check_second_order(sample: Sample) -> None:
    """The second-order gradients agree with central differences in float64."""
    call, inputs = _float64_leaves(sample)
    assert inputs
    gradgradcheck(pure_function(call), call.arrays(), rtol=_RTOL, atol=_ATOL, directions=_DIRECTIONS)


def check_forward_mode(sample: Sample) -> None:
    """Forward mode agrees with central differences in float64, along a random direction of all inputs."""
    import numpy as np

    f, xs, inputs = _function_of_float64(sample)
    moves = {i: _direction(sample, i, xs[i]) for i in inputs}
    values, tangents = jvp(f, tuple(xs), tuple(array(moves[i]) if i in moves else None for i in range(len(xs))))
    for value, expected in zip(as_tuple(values), as_tuple(f(*xs)), strict=True):
        np.testing.assert_array_equal(to_numpy(value), to_numpy(expected))

    def moved(step: float) -> tuple[Any, ...]:
        return as_tuple(f(*[array(x.numpy() + step * moves[i]) if i in moves else x for i, x in enumerate(xs)]))

    eps = 1e-6
    for i, (t, up, down) in enumerate(zip(as_tuple(tangents), moved(eps), moved(-eps), strict=True)):
        if dtypes.is_float(t.dtype):
            numeric = (to_numpy(up) - to_numpy(down)) / (2 * eps)
            text = f"{sample.op}: tangent of result {i}"
            np.testing.assert_allclose(to_numpy(t), numeric, rtol=_RTOL, atol=_ATOL, err_msg=text)


def _function_of_float64(sample: Sample) -> tuple[Any, list[NDArray], list[int]]:
    """The call as a function of its arrays, these in float64, and the indices of the differentiable ones."""
    call, inputs = _float64_leaves(sample)
    return pure_function(call), [x.detach() for x in call.arrays()], inputs


def _direction(sample: Sample, index: int, x: NDArray) -> Any:
    import numpy as np

    rng = np.random.default_rng(zlib.crc32(f"{sample!r}/tangent{index}".encode()))
    return np.asarray(rng.uniform(-1, 1, x.shape))


def _float64_leaves(sample: Sample) -> tuple[OperatorCall, list[int]]:
    """The call in float64, its differentiable arrays requiring gradients, and the indices of these arrays."""
    host = make_call(sample, "float64")
    inputs = gradient_inputs(host)
    arrays = [asarray(to_float64(a) if i in inputs else a, copy=True) for i, a in enumerate(host.arrays())]
    for i in inputs:
        arrays[i].requires_grad = True
    return host.with_arrays(arrays), inputs


def pure_function(call: OperatorCall) -> Any:
    """The call as a function of its arrays. It copies arrays that the operator overwrites and returns the results that
    have gradients."""
    rule, index = gradient_rule(call.op.name), call.op.schema.index
    assert rule is not None
    overwritten = {index[name] for name in call.op.inplace.values()}
    copied = [position in overwritten for position in call.positions()]

    def run(*arrays: NDArray) -> Any:
        operands = [asarray(a, copy=True) if copy else a for a, copy in zip(arrays, copied, strict=True)]
        results = call.with_arrays(operands).run()
        if rule.outputs in (None, 1):
            return results
        return tuple(r for i, r in enumerate(results) if i in rule.differentiable_outputs)

    return run
