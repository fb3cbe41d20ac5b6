"""Random operator calls: the samples of all operators with other values, shapes, dtypes, layouts and attributes.

A call may end with an error of meta, or with results of exactly the inferred types. A share of the results is compared
with the reference dialect, the interpreter and the virtual machine. Cases come in blocks of a few samples and dtypes,
so that most calls find their kernels.
"""

from __future__ import annotations

import random
from functools import cache
from math import sqrt
from typing import Any

import numpy as np

from meta import dtype as dtypes
from meta.eager.ndarray import NDArray, asarray
from meta.errors import DispatchError, KernelError, MetaError
from meta.interpreter.run import run
from meta.ir.parser import parse
from meta.ir.printer import to_text
from meta.ir.verifier import verify
from meta.op.dispatch import with_dialect
from meta.op.registry import get
from meta.testing.arrays import to_numpy
from meta.testing.call import OperatorCall, flat_results
from meta.testing.generic import check_types
from meta.testing.programs import trace_call
from meta.testing.samples import OTHER_DTYPES, Sample, T
from meta.testing.tolerance import FORWARD, compare
from meta.vm import compile as compile_program
from tests.python.op.samples import samples
from tests.python.vm.special_programs import COMMON, special_values

SAMPLES = 3
"""In one block of cases."""
_SIZES = (0, 1, 2, 3, 5, 8, 17)
NUMBERS = (-3, -1, 0, 1, 2, 7, 400, 2**31, 2**63, -(2**63), 10**400, 0.5, 5e-324, -1e39, float("inf"), float("nan"))
_ATTRIBUTES = (*NUMBERS, True, None, "x", (), (0,), [1, 2])
_LONGEST_ERROR = 10_000


def case(seed: int, index: int) -> str:
    """One call."""
    sample, dtype = _chosen(seed, index)
    rng = random.Random(f"calls/{seed}/{index}")
    extreme = rng.random() < 0.5
    try:
        host = _mutated(sample, dtype, rng, extreme)
    except (ValueError, TypeError, OverflowError):
        return ""  # NumPy holds no such array
    try:
        return _problem(sample, host, rng, extreme)
    except MetaError as error:
        return refusal_problem(host, error)
    except AssertionError as error:
        return f"{host.op.name}: {error}\n{shown(host)}"


def refusal_problem(host: OperatorCall, error: MetaError) -> str:
    """What is wrong with an error of meta: it is not about the arguments, or endless."""
    if isinstance(error, KernelError):
        return f"{host.op.name}: {str(error)[:_LONGEST_ERROR]}\n{shown(host)}"
    length = len(str(error))
    return f"{host.op.name}: an error of {length} characters" if length > _LONGEST_ERROR else ""


def _chosen(seed: int, index: int) -> tuple[Sample, str]:
    """The sample and dtype of a case: one of a few for each block."""
    block = random.Random(f"calls/{seed}/block {_block(index)}")
    rows = [block.choice(samples()) for _ in range(SAMPLES)]
    kinds = [block.choice(_dtypes(sample)) for sample in rows]
    number = random.Random(f"calls/{seed}/{index}/sample").randrange(SAMPLES)
    return rows[number], kinds[number]


def _block(index: int) -> int:
    """The block of a case: short ones at first, for short runs, then long ones, which compile less."""
    return index // 200 if index < 20_000 else 100 + (index - 20_000) // 4000


@cache
def _dtypes(sample: Sample) -> tuple[str, ...]:
    return sample.run_dtypes(OTHER_DTYPES)


# --- mutations -------------------------------------------------------------------------------------------------------


def _mutated(sample: Sample, dtype: str, rng: random.Random, extreme: bool) -> OperatorCall:
    """The call of a sample with changed sizes, dtypes, values, layouts and attributes, on NumPy arrays."""
    sizes: dict[int, int] = {}
    if rng.random() < 0.4:
        of = [d for t in _tensors(sample) for d in t.shape]
        sizes = {rng.choice(of): rng.choice(_SIZES)} if of else {}
    of_one = rng.random() < 0.25  # whether only some of the tensors change, which then rarely fit

    def array(tensor: T, path: str) -> Any:
        del path
        shape = tuple(sizes.get(d, d) for d in tensor.shape) if not of_one or rng.random() < 0.5 else tensor.shape
        if rng.random() < 0.02:
            shape = rng.choice([(), (1, *shape), shape[:-1], (*shape, 2)])
        changed = T(*shape, dtype=tensor.dtype, low=tensor.low, high=tensor.high, avoid=tensor.avoid)
        kind = rng.choice((*dtypes.ALL, dtype)) if rng.random() < 0.02 else dtype
        values = changed.values(kind, str(rng.random()))
        if rng.random() < 0.3:
            write_special(values, rng, extreme)
        return laid_out(values, rng)

    args, kwargs = sample.map(array)
    op = get(sample.op)
    if rng.random() < 0.03 and kwargs:
        kwargs[rng.choice(list(kwargs))] = rng.choice(_ATTRIBUTES)
    elif rng.random() < 0.03:
        kwargs[rng.choice(op.schema.names)] = rng.choice(_ATTRIBUTES)
    return OperatorCall(op, args, kwargs)


def _tensors(sample: Sample) -> list[T]:
    tensors: list[T] = []
    sample.map(lambda tensor, _: tensors.append(tensor))
    return tensors


def write_special(values: Any, rng: random.Random, extreme: bool) -> None:
    """Special values in place of some elements. extreme: also the largest and smallest, whose sums overflow."""
    kind = str(values.dtype)
    if not values.size or (not dtypes.is_float(kind) and not extreme):
        return
    special = special_values(kind) if extreme else COMMON
    flat = values.reshape(-1)
    for _ in range(rng.choice((1, 2, flat.size))):
        flat[rng.randrange(flat.size)] = rng.choice(special)


def laid_out(values: Any, rng: random.Random) -> Any:
    """The array in another layout: stepped, reversed, transposed, unaligned."""
    match rng.randrange(8):
        case 0 if values.ndim:
            larger = np.zeros((*values.shape[:-1], 2 * values.shape[-1]), values.dtype)
            larger[..., ::2] = values
            return larger[..., ::2]
        case 1:
            return values.copy(order="F")
        case 2:
            larger = np.zeros(values.size + 1, values.dtype)
            larger[1:] = values.ravel()
            return larger[1:].reshape(values.shape)
        case 3 if values.ndim:
            return values[::-1]
        case _:
            return values


# --- outcomes --------------------------------------------------------------------------------------------------------


def _problem(sample: Sample, host: OperatorCall, rng: random.Random, extreme: bool) -> str:
    """Raise AssertionError for a wrong result."""
    call = host.map(asarray)
    result = call.run()
    check_types(host.to_meta(), result)
    results = flat_results(result)
    if not results or not isinstance(results[0], NDArray) or call.op.inplace or sample.check is not None:
        return ""
    share = rng.random()
    if share < 0.05 and not extreme:
        _compare_reference(host, results)
    elif share < 0.07:
        compare_programs(host, compiled=share > 0.06)
    return ""


def _compare_reference(host: OperatorCall, results: list[Any]) -> None:
    if host.op.family.startswith("linalg_") and not all(np.isfinite(x).all() for x in host.arrays()):
        return  # factorisations of infinities and NaN have no defined values
    try:
        with with_dialect("reference"):
            expected = flat_results(host.to_meta().run())
    except DispatchError:
        return
    for i, (ours, theirs) in enumerate(zip(results, expected, strict=True)):
        compared = with_padding_of(host, to_numpy(ours), to_numpy(theirs))
        compare(
            f"result {i}, with the reference", compared, to_numpy(theirs), tolerance=bound(ours.dtype, to_numpy(theirs))
        )


def bound(dtype: str, reference: Any) -> tuple[float, float]:
    """The relative and absolute tolerance of results that two implementations add up in different orders."""
    tolerance = FORWARD.get(dtype, (0.0, 0.0))[0]
    return 8 * tolerance, 8 * tolerance * float(np.abs(finite(reference)).max(initial=1.0))


def with_padding_of(host: OperatorCall, ours: Any, theirs: Any) -> Any:
    """Our result, with theirs where a convolution of infinities or NaN is NaN in only one of them. Padding, and what
    strides leave between elements, is 0: times infinity that is NaN, or 0 where a kernel leaves such products out, and
    ATen's kernels do either, by dtype and shape. So do its products of 16-bit matrices on CPUs with tiles (AMX), whose
    rows are padded to the tile's."""
    arrays = host.arrays()
    padded = host.op.family == "conv" or (host.op.family == "linalg" and any(x.itemsize == 2 for x in arrays))
    if not padded or all(np.isfinite(x.astype(np.float64)).all() for x in arrays):
        return ours
    return np.where(np.isnan(ours) != np.isnan(theirs), theirs, ours)


def with_overflow_of(host: OperatorCall, ours: Any, theirs: Any) -> Any:
    """Our result, with theirs where one of them is not finite, of operators that add up finite numbers whose squares
    are not. Their order decides whether sums of some of them overflow to infinity, and infinities of both signs add up
    to NaN."""
    if host.op.pattern in ("elemwise", "broadcast", "injective") or ours.dtype.kind in "biu":
        return ours
    floats = [x for x in host.arrays() if x.size and dtypes.is_inexact(str(x.dtype))]
    if not all(np.isfinite(x).all() for x in floats) or all(
        float(np.abs(x).max()) <= sqrt(dtypes.largest(dtypes.real_dtype(str(x.dtype)))) for x in floats
    ):
        return ours
    return np.where(np.isfinite(ours) & np.isfinite(theirs), ours, theirs)


def finite(values: Any) -> Any:
    """The finite values in float64, magnitudes of complex ones; none for integers and bools, which are exact."""
    values = np.abs(values) if values.dtype.kind == "c" else values
    return values[np.isfinite(values)].astype(np.float64) if values.dtype.kind not in "biu" else np.zeros(0)


def compare_programs(host: OperatorCall, compiled: bool) -> None:
    """Raise AssertionError if results of a second call, of the interpreter, or of the machine, are not those of the
    call. All of them read copies, whose memory is aligned: "Equal bits" in docs/semantics.md."""
    program = trace_call(host.to_meta())
    call = host.to_meta()
    arrays = call.arrays()
    if not arrays:
        return
    results = flat_results(call.run())
    for i, (a, b) in enumerate(zip(flat_results(host.to_meta().run()), results, strict=True)):
        compare(f"result {i} of a second call", to_numpy(a), to_numpy(b), tolerance=(0.0, 0.0))
    module = program.record(arrays).module
    verify(module)
    text = to_text(module)
    assert to_text(parse(text)) == text, "the printed program reads back as another"
    outputs = flat_results(run(module, *host.to_meta().arrays()))[: len(results)]
    for i, (a, b) in enumerate(zip(outputs, results, strict=True)):
        assert a.type is b.type, f"result {i} of the interpreter is {a.type!r}, of the call {b.type!r}"
        compare(f"result {i} of the interpreter", to_numpy(a), to_numpy(b), tolerance=(0.0, 0.0))
    if not compiled:
        return
    for i, (a, b) in enumerate(zip(flat_results(compile_program(program)(arrays)), results, strict=True)):
        assert a.type is b.type, f"result {i} of the machine is {a.type!r}, of the call {b.type!r}"
        reference = to_numpy(b)
        compared = with_overflow_of(host, to_numpy(a), reference)
        compare(f"result {i} of the machine", compared, reference, tolerance=bound(b.dtype, reference))


def shown(host: OperatorCall) -> str:
    def text(value: Any) -> str:
        return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else repr(value)

    shown = host.map(lambda a: _Shown(text(a)))
    return f"{host.op.name}({', '.join(map(repr, shown.args))}, {shown.kwargs})"


class _Shown(str):
    """A text that prints without quotes."""

    __slots__ = ()
    __repr__ = str.__str__
