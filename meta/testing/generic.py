"""Checks of samples that apply to every operator. Each raises an AssertionError that describes the failure."""

from __future__ import annotations

from typing import Any

from meta import dtype as dtypes
from meta.eager.ndarray import NDArray
from meta.ir.type import TensorType, TupleType, Value, flat_types, stored_shape
from meta.op.decomposition import decompositions
from meta.testing.arrays import to_numpy, to_torch
from meta.testing.call import OperatorCall, flat_results, is_array, is_sequence
from meta.testing.samples import Sample
from meta.testing.tolerance import FORWARD, compare
from meta.tree import leaves_of, with_leaves


def make_call(sample: Sample, dtype: str = "") -> OperatorCall:
    """The sample's call, with NumPy arrays."""
    args, kwargs = sample.numpy(dtype)
    return OperatorCall(sample.operator, args, kwargs)


def check_forward(sample: Sample, dtype: str = "") -> None:
    """The result agrees with the reference, its run-time types with the inferred ones, and inputs are unchanged."""
    host = make_call(sample, dtype)
    call = host.to_meta()
    result = call.run()
    check_types(call, result)
    check_values(sample, host, result)
    for before, after in zip(host.arrays(), call.arrays(), strict=True):
        if call.op.inplace:
            break
        compare(f"{sample.op}: an input after the call", to_numpy(after), before, tolerance=(0.0, 0.0))


def check_decomposition(sample: Sample, dtype: str = "") -> bool:
    """The decomposition of the operator agrees with the reference; False if it does not cover the sample's call."""
    host = make_call(sample, dtype)
    result = run_decomposition(host.to_meta())
    if result is None:
        return False
    check_values(sample, host, result, f"the decomposition of {sample.op}")
    return True


def run_decomposition(call: OperatorCall) -> Any:
    """The results of the decomposition of a call, in the declared dtypes; None if it does not cover the call."""
    op, args = call.op, call.bound_arguments()
    decomposition = decompositions(op.family)[op.name]
    operands = args
    if decomposition.wide:
        operands = with_leaves(args, [_widened(x) if isinstance(x, NDArray) else x for x in leaves_of(args)])
    results = decomposition.function(*operands)
    if results is None:
        return None
    types = flat_types((op.infer(args),))
    cast = [_cast(y, t.dtype) for y, t in zip(flat_results(results), types, strict=True)]
    return tuple(cast) if isinstance(results, tuple) else cast[0]


def _widened(x: NDArray) -> NDArray:
    return _cast(x, dtypes.accumulation_dtype(x.dtype))


def _cast(x: NDArray, dtype: str) -> NDArray:
    return x if x.dtype == dtype else x.cast(dtype)


def check_types(call: OperatorCall, result: object) -> None:
    """Every result, and the memory behind it, has the shape and dtype that the type function inferred."""
    inferred = call.op.infer(call.bound_arguments())
    if isinstance(inferred, Value):
        assert result == inferred.value, f"{call.op.name} gave {result!r}, inferred {inferred.value!r}"
        return
    expected = inferred.fields if isinstance(inferred, TupleType) else (inferred,)
    results = flat_results(result)
    assert isinstance(result, tuple) == isinstance(inferred, TupleType), f"{call.op.name} gave {type(result).__name__}"
    assert len(results) == len(expected), f"{call.op.name} gave {len(results)} results, inferred {len(expected)}"
    for i, (x, t) in enumerate(zip(results, expected, strict=True)):
        assert x.type is t, f"{call.op.name}: result {i} is {x.type!r}, inferred {t!r}"
        memory = (tuple(x._data.shape), str(x._data.dtype))
        assert isinstance(t, TensorType)
        assert memory == stored_shape(t.shape, t.dtype), (
            f"{call.op.name}: the memory of result {i} is {memory}, inferred {t!r}"
        )


def check_values(sample: Sample, host: OperatorCall, result: object, what: str = "") -> None:
    """`result` agrees with the sample's reference or satisfies its check."""
    name = what or sample.op
    if sample.check is not None:
        arrays = tuple(to_numpy(r) for r in flat_results(result))
        sample.check(arrays if isinstance(result, tuple) else arrays[0], *host.args, **host.kwargs)
        return
    results = flat_results(result)
    if not isinstance(results[0], NDArray):
        expected = host.map(to_torch).apply(_reference(sample))
        assert _comparable(result) == _comparable(expected), f"{name} gave {result!r}, expected {expected!r}"
        return
    rounded, exact = reference_results(sample, host, results)
    for i, (ours, theirs, oracle) in enumerate(zip(results, rounded, exact, strict=True)):
        if theirs is None:
            continue
        label = f"{name}: result {i}" if len(results) > 1 else name
        compare(label, to_numpy(ours), theirs, oracle=oracle, tolerance=tolerance_of(sample, ours.dtype))


def tolerance_of(sample: Sample, dtype: str) -> tuple[float, float]:
    """(rtol, atol) of a sample in a dtype."""
    return sample.tol.get(dtype) or FORWARD.get(dtype, (0.0, 0.0))


def reference_results(sample: Sample, host: OperatorCall, results: list[Any]) -> tuple[list[Any], list[Any]]:
    """The reference's results for the values of `host`, in their dtype and in float64.

    If torch cannot run the reference in a dtype, its float64 result is rounded. A result of None is not compared."""
    ref = _reference(sample)
    exact = _exact_results(host, ref)
    try:
        rounded = [_host_array(r) for r in flat_results(host.map(to_torch).apply(ref))]
    except (RuntimeError, NotImplementedError, TypeError):
        # torch lacks many CPU kernels for half floats and integers.
        rounded = [
            None if e is None else e.astype(dtypes.to_numpy(r.dtype)) for e, r in zip(exact, results, strict=False)
        ]
    assert len(rounded) == len(results), f"{sample.op} gave {len(results)} results, the reference {len(rounded)}"
    return rounded, exact


def _exact_results(host: OperatorCall, ref: Any) -> list[Any]:
    """The results in float64; integers are also converted if torch lacks an integer kernel."""
    import numpy as np

    try:
        return [_host_array(r) for r in flat_results(host.map(lambda a: to_torch(to_float64(a))).apply(ref))]
    except NotImplementedError:
        return [_host_array(r) for r in flat_results(host.map(lambda a: to_torch(a.astype(np.float64))).apply(ref))]


def _reference(sample: Sample) -> Any:
    assert sample.ref is not None, f"{sample!r} has no reference"
    return sample.ref


def to_float64(array: Any) -> Any:
    """A floating array in float64, a complex one in complex128; other arrays unchanged."""
    import numpy as np

    if dtypes.is_complex(str(array.dtype)):
        return array.astype(np.complex128)
    return array.astype(np.float64) if dtypes.is_float(str(array.dtype)) else array


def _host_array(value: object) -> Any:
    return None if value is None else to_numpy(value)


def _comparable(value: object) -> Any:
    """A plain result in comparable form: torch.Size and lists become tuples."""
    if is_array(value):
        return to_numpy(value).tolist()
    return tuple(value) if is_sequence(value) else value
