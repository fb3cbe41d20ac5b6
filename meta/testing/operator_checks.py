"""The checks of `opcheck` on results: types, values on each dialect, memory, symbolic sizes, mixed precision, caching.

A check takes a Case. It raises AssertionError or any other exception if the operator is wrong, Skip if it does not
apply."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import meta
from meta import dtype as dtypes
from meta.dim import evaluate, sym, unify
from meta.eager.call import device_of, state
from meta.eager.ndarray import NDArray, asarray
from meta.errors import TypeInferenceError
from meta.ir.expr import CallInfo
from meta.ir.type import TensorType, TupleType, Value
from meta.op.dispatch import Implementation, with_dialect
from meta.op.grad.rule import as_tuple
from meta.op.precision import data_positions, needs_cast, target_dtype
from meta.op.registry import Op, as_type
from meta.testing.arrays import to_numpy
from meta.testing.call import flat_results
from meta.testing.generic import check_values, to_float64
from meta.testing.operator_case import Case, Skip, compare_results
from meta.testing.tolerance import FORWARD, compare
from meta.tree import leaves_of, with_leaves

# --- the operator ----------------------------------------------------------------------------------------------------


def docs(op: Op) -> None:
    """The operator and its arguments are documented."""
    assert op.doc.strip() not in ("", op.name), "it has no documentation: write a docstring in its type function"
    missing = [arg.name for arg in op.schema.args if not arg.doc.strip()]
    assert not missing, f"arguments without documentation: {', '.join(missing)}; write Arg(..., doc=...)"


def schema(case: Case) -> None:
    """Arguments bind by position and by name, defaults may be left out, and normal forms stay as they are."""
    call = case.fresh()
    bind, name, arguments = call.op.schema.bind, call.op.name, call.op.schema.args
    bound = call.bound_arguments()
    again = bind(name, bound, {})
    assert _comparable(bound) == _comparable(again), f"normalising once gives {bound!r}, twice {again!r}"
    arguments_by_name = dict(zip(call.op.schema.names, bound, strict=True))
    assert _comparable(bind(name, (), arguments_by_name)) == _comparable(bound), (
        "keywords give other values than positions"
    )
    required = {arg.name: arguments_by_name[arg.name] for arg in arguments if arg.required}
    defaults = {arg.name: arg.default for arg in arguments if not arg.required}
    omitted, stated = bind(name, (), required), bind(name, (), required | defaults)
    assert _comparable(omitted) == _comparable(stated), "defaults left out give other values than defaults given"


def _comparable(values: tuple[Any, ...]) -> Any:
    """Arguments in comparable form: arrays by identity."""
    return with_leaves(values, [id(v) if isinstance(v, NDArray) else (v, type(v)) for v in leaves_of(values)])


# --- results ---------------------------------------------------------------------------------------------------------


def types(case: Case) -> None:
    """Results, and the memory behind them, have the shapes, dtypes and devices that the type function inferred."""
    case.run()


def inputs(case: Case) -> None:
    """A call changes none of its arguments but those that it declares to update in place."""
    op, call = case.op, case.fresh()
    updated = {op.schema.index[name] for name in op.inplace.values()}
    for dialect in case.dialects() or [None]:
        call = case.fresh()
        with with_dialect(dialect) if dialect else nullcontext():
            call.run()
        for before, after, position in zip(case.call.arrays(), call.arrays(), call.positions(), strict=True):
            if position not in updated:
                what = f"argument '{op.schema.names[position]}' after the call on {dialect or 'its memory'}"
                compare(what, to_numpy(after), before, tolerance=(0.0, 0.0))


def deterministic(case: Case) -> None:
    """Two calls on the same values give the same bits."""
    compare_results("a second call", case.run(), case.run(), exact=True)


def values(case: Case) -> None:
    """Results agree with the reference of the Sample."""
    if case.sample is None:
        raise Skip("the sample has no reference: pass a meta.testing.Sample with ref=")
    call = case.fresh()
    check_values(case.sample, case.call, call.run())


def dialects(case: Case) -> None:
    """Every dialect that accepts the call agrees with the reference implementation, or else with the lowest plevel."""
    names = case.dialects()
    if len(names) < 2:
        raise Skip(f"only {names[0]} accepts it" if names else "it runs no kernel")
    base = "reference" if "reference" in names else names[-1]
    expected, oracle = case.run(base), _in_float64(case, base)
    for name in names:
        if name != base:
            compare_results(f"{name} against {base}", case.run(name), expected, oracle=oracle)


def _in_float64(case: Case, dialect: str) -> list[Any] | None:
    """The results of a dialect in float64, None if it does not accept that."""
    exact = case.variant(to_float64)
    if exact.refusal() is not None or dialect not in exact.dialects():
        return None
    return [to_numpy(r) for r in exact.run(dialect)]


def floating_dtypes(case: Case) -> None:
    """In every other floating dtype that the type function accepts, each dialect is close to the result in float64."""
    own = {str(a.dtype) for a in case.call.arrays() if dtypes.is_float(str(a.dtype))}
    if not own:
        raise Skip("no argument is floating")
    for dtype in dtypes.FLOATS:
        variant = case.cast(dtype)
        if dtype in own or variant.refusal() is not None:
            continue
        exact = variant.variant(to_float64)
        expected = exact.run() if exact.refusal() is None else None
        for name in variant.dialects() or [None]:
            results = variant.run(name)
            if expected is not None:
                _compare_roughly(f"{name or 'a view'} in {dtype}", results, expected, FORWARD[dtype][0] * 4)


def _compare_roughly(what: str, actual: list[Any], expected: list[Any], rtol: float) -> None:
    """Compare floating results in a relative tolerance, also of the largest value."""
    import numpy as np

    for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
        if isinstance(a, NDArray) and dtypes.is_float(a.dtype):
            with np.errstate(over="ignore"):  # beyond the range of the dtype the result is infinite
                reference = to_numpy(b).astype(dtypes.to_numpy(a.dtype)).astype(np.float64)
            largest = np.abs(reference[np.isfinite(reference)]).max(initial=1.0)
            host = to_numpy(a).astype(np.float64)
            compare(f"{what}, result {i}", host, reference, tolerance=(rtol, rtol * float(largest)))


# --- memory ----------------------------------------------------------------------------------------------------------


def strided(case: Case) -> None:
    """Results are the same for arrays that come from stepped, transposed and unaligned memory, bit by bit with TVM's
    kernels. Libraries round differently on unaligned memory."""
    if not case.call.arrays():
        raise Skip("it takes no arrays")
    for name in case.dialects() or [None]:
        expected = case.run(name)
        for layout in (_stepped, _transposed, _unaligned):
            # The layout describes the memory that a NumPy array is imported from.
            call = case.call.map(lambda a, layout=layout: asarray(layout(a), device=case.device))
            with with_dialect(name) if name else nullcontext():
                actual = flat_results(call.run())
            what = f"{layout.__name__.strip('_')} memory on {name or 'a view'}"
            compare_results(what, actual, expected, exact=name == "tvm")


def _stepped(a: Any) -> Any:
    """Every second element along the last axis of a larger array."""
    import numpy as np

    if not a.ndim:
        return a.copy()
    larger = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
    larger[..., ::2] = a
    return larger[..., ::2]


def _transposed(a: Any) -> Any:
    return a.copy(order="F")


def _unaligned(a: Any) -> Any:
    """Memory that starts one element after an allocation does."""
    import numpy as np

    larger = np.zeros(a.size + 1, a.dtype)
    larger[1:] = a.ravel()
    return np.reshape(larger[1:], a.shape)


def zero_size(case: Case) -> None:
    """With 0 in place of each size, the type function refuses the call or every dialect runs it and agrees."""
    import numpy as np

    sizes = sorted({d for a in case.call.arrays() for d in a.shape if d > 1})
    accepted: list[int] = []
    for size in sizes:
        variant = case.variant(
            lambda a, size=size: np.zeros(tuple(0 if d == size else d for d in a.shape), a.dtype) if a.ndim else a
        )
        if variant.refusal() is not None:
            continue
        accepted.append(size)
        expected = variant.run()
        for name in variant.dialects():
            compare_results(f"{name} with 0 in place of {size}", variant.run(name), expected)
    if not accepted:
        raise Skip("its type function refuses sizes of 0" if sizes else "no array has a size above 1")


# --- types -----------------------------------------------------------------------------------------------------------


def symbolic(case: Case) -> None:
    """On symbolic sizes the type function gives the same result as on numbers."""
    arguments = tuple(map(as_type, case.fresh().bound_arguments()))
    concrete = case.op.infer(arguments)
    refusals: list[str] = []
    for tied in (True, False):
        sizes: dict[str, int] = {}
        symbols = with_leaves(arguments, [_symbolic_type(a, sizes, tied) for a in leaves_of(arguments)])
        if not sizes:
            raise Skip("no array has a size above 1")
        try:
            with nullcontext() if tied else unify():
                inferred = case.op.infer(symbols)
        except TypeInferenceError as error:
            refusals.append(error.summary)
            continue
        text = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        _check_same_type(f"with {text} its type function", inferred, concrete, sizes)
    if len(refusals) == 2:
        raise Skip(f"its type function takes numbers only: {refusals[0]}")


def _symbolic_type(arg: object, sizes: dict[str, int], tied: bool) -> Any:
    """A tensor type with a name for every size above 1; equal sizes have one name if they are tied."""
    if not isinstance(arg, TensorType):
        return arg
    shape: list[Any] = []
    for d in arg.shape:
        if not isinstance(d, int) or d < 2:
            shape.append(d)
            continue
        name = f"n{d}" if tied else f"n{len(sizes)}"
        sizes[name] = d
        shape.append(sym(name))
    return arg.with_shape(tuple(shape))


def _check_same_type(what: str, symbolic: object, concrete: object, sizes: dict[str, int]) -> None:
    assert type(symbolic) is type(concrete), f"{what} gives {symbolic!r}, with numbers {concrete!r}"
    pairs = zip(_parts(symbolic), _parts(concrete), strict=False)
    same = len(_parts(symbolic)) == len(_parts(concrete)) and all(_agrees(a, b, sizes) for a, b in pairs)
    assert same, f"{what} gives {symbolic!r}, with numbers {concrete!r}"


def _parts(kind: object) -> tuple[Any, ...]:
    return kind.fields if isinstance(kind, TupleType) else as_tuple(kind.value) if isinstance(kind, Value) else (kind,)


def _agrees(symbolic: Any, concrete: Any, sizes: dict[str, int]) -> bool:
    """Whether a tensor type, or a size of a Value, is `concrete` for these sizes."""
    if not isinstance(symbolic, TensorType):
        return evaluate(symbolic, sizes) == concrete
    if (symbolic.dtype, symbolic.device, symbolic.ndim) != (concrete.dtype, concrete.device, concrete.ndim):
        return False
    # Sizes that depend on values are symbolic in both.
    pairs = zip(symbolic.shape, concrete.shape, strict=True)
    return all(evaluate(a, sizes) == b for a, b in pairs if isinstance(b, int))


def autocast(case: Case) -> None:
    """Under autocast the call runs in the dtype of the operator's rule, close to its result in float32."""
    applies = False
    for low in dtypes.HALVES:
        # "never" raises activations in low precision, the other rules lower those in float32.
        variant = case.cast(low) if case.op.amp == "never" else case
        arguments = variant.fresh().bound_arguments()
        kinds = tuple(map(as_type, arguments))
        low_dtype = target_dtype(case.op, kinds, low, {})
        if low_dtype is None:
            continue
        applies = True
        cast = list(kinds)
        for i in data_positions(case.op):
            casts = [t.with_dtype(low_dtype) if needs_cast(t, low_dtype) else t for t in leaves_of(kinds[i])]
            cast[i] = with_leaves(kinds[i], casts)
        try:
            inferred = case.op.infer(cast)
        except TypeInferenceError as error:
            rule = f"its mixed-precision rule {case.op.amp!r} casts to {low_dtype}, which its type function refuses"
            raise AssertionError(f"{rule}: {error.summary}") from None
        with meta.amp.autocast(low):
            results = flat_results(variant.fresh().run())
        for i, (result, kind) in enumerate(zip(results, _parts(inferred), strict=True)):
            text = f"under autocast({low!r}) result {i} is {result.type!r}, by the rule {case.op.amp!r} {kind!r}"
            assert not isinstance(kind, TensorType) or not kind.is_static or result.type is kind, text
        _compare_roughly(f"under autocast({low!r})", results, case.run(), FORWARD[low][0] * 4)
    if not applies:
        raise Skip(f"its mixed-precision rule {case.op.amp!r} casts none of these arguments")


# --- caching ---------------------------------------------------------------------------------------------------------


def cache(case: Case) -> None:
    """Without cached runners a call gives the same bits, and the keys of its kernels on disk follow their computes."""
    expected = case.run()
    op_state = state(case.op)
    for runners in (op_state.fast, op_state.scoped, op_state.normal):
        runners.clear()
    compare_results("the call without cached runners", case.run(), expected, exact=True)
    for implementation, info in _te_implementations(case):
        _check_kernel_key(implementation.payload, info)


def _te_implementations(case: Case) -> Iterator[tuple[Implementation, CallInfo]]:
    from meta.backend.tvm.compute import TEImplementation

    arguments = case.fresh().bound_arguments()
    kinds = tuple(map(as_type, arguments))
    for implementation in case.accepting():
        if isinstance(implementation.payload, TEImplementation):
            out = case.op.infer(kinds)
            if all(isinstance(t, TensorType) and t.is_static for t in _parts(out)):
                yield implementation, CallInfo(case.op, kinds, out, device_of(arguments, out))


def _check_kernel_key(payload: Any, info: CallInfo) -> None:
    from meta.backend.tvm.kernel import disk_key
    from meta.backend.tvm.shape_generic import spec

    kernel_spec = spec(payload, info, symbolic=False)
    if not kernel_spec.key:
        message = "its TVM compute builds another kernel at each call, which the next process would not find on disk"
        assert disk_key(kernel_spec) == disk_key(kernel_spec), message
        return
    compute = inspect.unwrap(payload.compute)
    defined = inspect.getsourcefile(getattr(compute, "function", compute)) or ""  # of one element, for elementwise ones
    package = str(Path(meta.__file__).parent)
    message = f"its kernels are identified by the contents of {payload.source}, but {defined} defines its TVM compute: "
    assert defined.startswith(package), message + "an edit would not take effect; register it without a source"
