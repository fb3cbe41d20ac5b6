"""Kernels for eager calls: one build serves every shape of an operator, rank and dtype, and all values of numbers.

The declaration runs once on new symbolic sizes inside `unify`: sizes that its rules compare become one extent of the
kernel. Sizes equal to 1 stay 1, because broadcasting depends on them; on a GPU, names of extents tell which sizes are
long. A declaration or compute that needs sizes as numbers gets a kernel for the static shapes. Attributes that are
numbers are parameters of the kernel, unless the compute needs their values (see `meta.backend.tvm.numbers`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from meta import dtype as dtypes
from meta._generated import limits
from meta.backend.eviction import on_eviction
from meta.backend.memory import allocation
from meta.backend.memory.numpy_arrays import from_numpy
from meta.backend.tvm.compute import RuntimeFunction, TEImplementation, source_key
from meta.backend.tvm.kernel import Compiled, Kernel, build
from meta.backend.tvm.numbers import NeedsValueError, NumberSpec, rounded
from meta.backend.tvm.spec import KernelSpec, SizeSpec, TensorSpec, size_name
from meta.cache import default_max_kernels
from meta.device import CPU
from meta.dim import Dim, Shape, SymDim, find, sym, unify
from meta.errors import MetaError
from meta.ir.type import TensorType, flat_types, operand_dtype, tensor_type
from meta.tree import leaves_of, with_leaves

if TYPE_CHECKING:
    from meta.ir.expr import CallInfo


_NARROW_INDEX_PATTERNS: Final = ("elemwise", "broadcast", "injective", "softmax")
"""Patterns whose intermediate tensors are no larger than operands and results, so that 32 bits count their elements
of calls that are not large: GPUs divide 64-bit indices slowly. Reductions over columns measured slower with 32 bits."""
_LENGTH_PATTERNS: Final = ("reduce", "softmax")
"""Patterns whose schedules depend on the length of an axis."""


def kernel(payload: TEImplementation | RuntimeFunction, call: CallInfo) -> Kernel:
    """The compiled kernel of `call`. Python scalars are its 0-d operands and numbers its parameters, so their values
    are not compiled in."""
    if isinstance(payload, RuntimeFunction):
        return payload.run
    while numbers := _numbers(payload, call):
        try:
            return _kernel(payload, call, numbers)
        except NeedsValueError as error:
            for i in error.positions:
                _compile_in(payload, call.op.schema.names[i], error.constant)
        except ArithmeticError:  # of a parameter, as 1 / 0: the compute raises it too, or treats the value apart
            break
        except (MetaError, ValueError, TypeError, RuntimeError):
            without_numbers = _kernel(payload, call, {})  # reports an error that has another cause
            for i in numbers:
                _compile_in(payload, call.op.schema.names[i], None)
            return without_numbers
    return _kernel(payload, call, {})


def _compile_in(payload: TEImplementation, name: str, constant: float | None) -> None:
    """From now on compile in a value of a number, None: every value."""
    most_constants = 8  # Values of a number that a compute may treat apart.
    before = payload.needed.get(name, ())
    if constant is None or before is None or len(before) == most_constants:
        payload.needed[name] = None
    else:
        payload.needed[name] = (*before, constant)


_NUMBERS: Final = ("Float", "Number", "NumberOrSize")
"""Names of the argument types of numbers that are parameters."""


def _numbers(payload: TEImplementation, call: CallInfo) -> dict[int, NumberSpec]:
    """The attributes that are parameters of the kernel, by position.

    Ints count if the computes of this package say so: in expressions of others, they take the dtype of a literal."""
    floats = {t.dtype for t in (*call.tensors(), *call.outputs()) if dtypes.is_float(t.dtype)}
    if not payload.source and "float64" in floats and len(floats) > 1:
        return {}  # in other computes a literal takes the dtype of its other operand
    numbers: dict[int, NumberSpec] = {}
    for i, (arg, value) in enumerate(zip(call.op.schema.args, call.args, strict=True)):
        if value.__class__ is not float and not (value.__class__ is int and payload.source):
            continue
        is_number = arg.type.role == "attr" and arg.type.name.removesuffix("?") in _NUMBERS
        value_names = payload.needed.get(arg.name, ())
        if not (is_number or arg.name in payload.lift) or value_names is None or not _is_held(value):
            continue
        excluded = (*payload.constants, *value_names)
        if value not in excluded:
            numbers[i] = NumberSpec(value.__class__ is float, excluded)
    return numbers


def _is_held(value: float) -> bool:
    """Whether the calling convention of kernels holds a number: a float, or an int of 64 bits."""
    return isinstance(value, float) or -(1 << 63) <= value < 1 << 63


def _kernel(payload: TEImplementation, call: CallInfo, numbers: Mapping[int, NumberSpec]) -> Kernel:
    scalars = _scalar_operands(payload, call, numbers)
    lifted = _lift_scalars(call, scalars)
    if _is_generic(payload, call) and payload.vectors is not None:
        return _build_with_vectors(payload, call, lifted, scalars, numbers)
    shared = _bind_numbers(_built(payload, call, {**{i: lifted.args[i] for i in scalars}, **numbers}), call)
    return _bind_constants(shared, call, lifted, scalars) if scalars else shared


_built_before: dict[Any, tuple[Compiled, object]] = {}
"""The kernels of calls with numbers, and their payloads, by what they are built from. A new value of a number then
needs neither a declaration on symbols nor a specification."""
on_eviction(_built_before.clear)


def _built(payload: TEImplementation, call: CallInfo, run_time: Mapping[int, TensorType | NumberSpec]) -> Compiled:
    """The kernel for all values of the arguments at the positions in `run_time`."""
    if not run_time:
        return _build(payload, call, run_time)
    args = [run_time.get(i, arg) for i, arg in enumerate(call.args)]
    facts = tuple(arg if isinstance(arg, (TensorType, NumberSpec)) else repr(arg) for arg in args)
    key = id(payload), call.op, facts, call.out, call.device
    kernel, _ = _built_before.get(key, (None, None))
    if kernel is None:
        kernel = _build(payload, call, run_time)
        if len(_built_before) >= default_max_kernels():
            _built_before.clear()
        _built_before[key] = kernel, payload
    return kernel


def _bind_numbers(kernel: Compiled, call: CallInfo) -> Kernel:
    """The kernel with the parameters of `call`. They come first, because `partial` costs less than a function."""
    values = [parameter.value(call.args) for parameter in kernel.parameters]
    return partial(kernel.function, *values) if values else kernel.function


def _build_with_vectors(
    payload: TEImplementation,
    call: CallInfo,
    lifted: CallInfo,
    scalars: tuple[int, ...],
    numbers: Mapping[int, NumberSpec],
) -> Kernel:
    """The kernel that takes tuples of ints as operands: one build serves all their values."""
    assert payload.vectors is not None
    values = payload.vectors(call)
    constants, operands, vectors = list(call.args), list(lifted.args), set[int]()
    for i, name in enumerate(call.op.schema.names):
        if name in payload.sizes:
            operands[i] = ()
        elif name in values:
            constants[i], operands[i] = values[name], ()
            if values[name]:
                operands[i] = tensor_type((len(values[name]),), "int64", call.device)
                vectors.add(i)
    symbols = _SizeSymbols(call, by_length=False)
    args = tuple(
        numbers.get(i, arg if i in vectors else _map_types(symbols.renamed, arg)) for i, arg in enumerate(operands)
    )
    outs = tuple(map(symbols.renamed, call.outputs()))
    shared = _bind_numbers(_compiled(_kernel_spec(payload, call, args, outs), call), call)
    lifted = replace(call, args=tuple(numbers.get(i, arg) for i, arg in enumerate(operands)))
    positions = tuple(sorted(vectors.union(scalars)))
    return _bind_constants(shared, replace(call, args=tuple(constants)), lifted, positions) if positions else shared


def _compiled(kernel_spec: KernelSpec, call: CallInfo) -> Compiled:
    """The kernel of an eager call, which on the CPU refuses positions out of range."""
    return build(replace(kernel_spec, positions=call.op.positions if call.device.kind == "cpu" else None))


def _build(payload: TEImplementation, call: CallInfo, numbers: Mapping[int, TensorType | NumberSpec]) -> Compiled:
    if _is_generic(payload, call) and not is_large(call):
        try:
            return _compiled(spec(payload, call, symbolic=True, numbers=numbers), call)
        except (MetaError, ValueError, TypeError, RuntimeError):
            # The declaration or the compute needs numbers; the static build below reports any other error.
            pass
    return _compiled(spec(payload, call, symbolic=False, numbers=numbers), call)


def _is_generic(payload: TEImplementation, call: CallInfo) -> bool:
    return payload.generic if isinstance(payload.generic, bool) else payload.generic(call)


def is_large(call: CallInfo) -> bool:
    """Whether a kernel for the exact sizes repays its build: on CUDA it has constant indices and wider loads."""
    sizes: list[Any] = [t.nbytes for t in (*call.tensors(), *call.outputs()) if t.is_static]
    return call.device.kind == "cuda" and sum(sizes) >= limits.LARGE_CALL_BYTES


def spec(
    payload: TEImplementation,
    call: CallInfo,
    *,
    symbolic: bool,
    numbers: Mapping[int, TensorType | NumberSpec | SizeSpec] | None = None,
) -> KernelSpec:
    """The specification of the kernel of `call`, with symbolic or static extents.

    numbers: the types of the numbers that the kernel takes at run time, by position."""
    args, outs = _symbolic_types(payload, call) if symbolic else (call.args, call.outputs())
    numbers = numbers or {}
    positions = _scalar_operands(payload, call, numbers)
    if positions and dtypes.is_float(dtype := _scalar_dtype(call, positions)):
        # A kernel that takes the number as an operand gets it in this dtype.
        args = tuple(rounded(arg, dtype) if i in positions else arg for i, arg in enumerate(args))
    args = tuple(numbers.get(i, arg) for i, arg in enumerate(args))
    kernel_spec = _kernel_spec(payload, call, args, outs)
    return replace(kernel_spec, index="int32") if symbolic and _fits_int32(kernel_spec, call) else kernel_spec


def _fits_int32(kernel_spec: KernelSpec, call: CallInfo) -> bool:
    """Whether 32 bits count the elements of every call that is not large, and int32 holds the indices in operands."""
    is_wide = any(t.dtype in ("int64", "uint64", "uint32") for t in (*call.tensors(), *call.outputs()))
    return kernel_spec.target == "cuda" and kernel_spec.pattern in _NARROW_INDEX_PATTERNS and not is_wide


def _kernel_spec(
    payload: TEImplementation, call: CallInfo, args: tuple[Any, ...], outs: tuple[TensorType, ...]
) -> KernelSpec:
    return KernelSpec(
        name=call.op.name,
        compute=payload.compute,
        args=_map_types(_tensor_spec, args),
        outs=tuple(map(_tensor_spec, outs)),
        pattern=payload.pattern or call.op.pattern,
        target=call.device.kind,
        key=source_key(payload.source),
    )


def _symbolic_types(payload: TEImplementation, call: CallInfo) -> tuple[tuple[Any, ...], tuple[TensorType, ...]]:
    """`call.args` and the result types with new symbols for all sizes but 1, tied if the declaration compares them."""
    symbols = _SizeSymbols(call, (payload.pattern or call.op.pattern) in _LENGTH_PATTERNS)
    names = call.op.schema.names
    with unify() as tied:
        args = tuple(
            symbols.shape(arg) if name in payload.sizes and isinstance(arg, tuple) else _map_types(symbols.renamed, arg)
            for name, arg in zip(names, call.args, strict=True)
        )
        outs = flat_types((call.op.infer(args),))
        args = tuple(
            () if name in payload.sizes and isinstance(arg, tuple) else arg
            for name, arg in zip(names, args, strict=True)
        )

        def merge_ties(t: TensorType) -> TensorType:
            return t.with_shape(tuple(find(d, tied) for d in t.shape))

        return _map_types(merge_ties, args), tuple(map(merge_ties, outs))


def _map_types(function: Callable[[TensorType], Any], args: Any) -> Any:
    """The arguments with `function(type)` in place of each tensor type."""
    return with_leaves(args, [function(leaf) if isinstance(leaf, TensorType) else leaf for leaf in leaves_of(args)])


class _SizeSymbols:
    """New symbols for sizes; 1 stays 1. by_length: whether kernels depend on lengths. On a GPU the names of symbols
    tell then which sizes are long. On the CPU short rows that have a result each, if these are many, keep their length,
    since their steps are unrolled: the sums of 100,000 rows of 3 take 28 us in place of 735."""

    def __init__(self, call: CallInfo, by_length: bool) -> None:
        self.number = count()
        self.tells_length = by_length and call.device.kind == "cuda"
        results = [t.size for t in call.outputs()] if by_length and call.device.kind == "cpu" else []
        self.keeps_rows = bool(results) and all(isinstance(n, int) and n >= limits.LEAST_ROW_COUNT for n in results)

    def shape(self, shape: Shape) -> Shape:
        return tuple(
            d if d == 1 or self._is_kept(d, i, shape) else sym(f"{self._prefix(d)}{next(self.number)}")
            for i, d in enumerate(shape)
        )

    def _is_kept(self, d: Dim, axis: int, shape: Shape) -> bool:
        is_last = 0 < axis == len(shape) - 1
        return self.keeps_rows and is_last and isinstance(d, int) and d <= limits.UNROLLED_STEPS

    def renamed(self, t: TensorType) -> TensorType:
        return t.with_shape(self.shape(t.shape))

    def _prefix(self, d: Dim) -> str:
        return size_name(d) if self.tells_length and isinstance(d, int) else "n"


def _tensor_spec(t: TensorType) -> TensorSpec:
    return TensorSpec(tuple(map(_extent, t.shape)), t.dtype)


def _extent(value: Dim) -> int | str:
    return str(value) if isinstance(value, SymDim) else value


def _scalar_operands(payload: TEImplementation, call: CallInfo, numbers: Mapping[int, Any]) -> tuple[int, ...]:
    """Positions of the numbers that are 0-d operands: those in place of a tensor."""
    return tuple(
        i
        for i, (arg, value) in enumerate(zip(call.op.schema.args, call.args, strict=True))
        if isinstance(value, (bool, int, float))
        and arg.type.role == "scalar"
        and i not in numbers
        and value not in payload.constants
    )


def _lift_scalars(call: CallInfo, positions: tuple[int, ...]) -> CallInfo:
    """The same call with the numbers at `positions` as 0-d tensors of the dtype that the operator computes in."""
    if not positions:
        return call
    scalar = tensor_type((), _scalar_dtype(call, positions), call.device)
    return replace(call, args=tuple(scalar if i in positions else arg for i, arg in enumerate(call.args)))


def _scalar_dtype(call: CallInfo, positions: tuple[int, ...]) -> str:
    """The dtype of the numbers at `positions`, which are operands."""
    dtype = operand_dtype(*[a for a in call.args if isinstance(a, TensorType)], *[call.args[i] for i in positions])
    if call.op.inplace:  # step sizes: float16 would make 0 of 1e-8
        dtype = dtypes.accumulation_dtype(dtype)
    return "float64" if dtypes.is_float(dtype) and any(t.dtype == "float64" for t in call.outputs()) else dtype


def _bind_constants(shared: Kernel, call: CallInfo, lifted: CallInfo, positions: tuple[int, ...]) -> Kernel:
    """`shared` with the scalar operands of `call` bound; the result takes tensors only."""
    slots: list[Any] = []
    for i, arg in enumerate(lifted.args):
        if i in positions:
            slots.append(_constant(call.args[i], arg))
        else:
            slots.extend([None] * len(flat_types((arg,))))
    if len(slots) == 2 and slots[0] is None:
        second = slots[1]
        return lambda x, out: shared(x, second, out)
    if len(slots) == 2 and slots[1] is None:
        first = slots[0]
        return lambda x, out: shared(first, x, out)

    def run(*tensors: Any) -> None:
        rest = iter(tensors)
        inputs = [next(rest) if slot is None else slot for slot in slots]
        shared(*inputs, *rest)

    return run


def _constant(value: float, t: TensorType) -> Any:
    """A 0-d tensor of `value`, or a vector of a tuple."""
    import numpy as np

    # Ints of more than 64 bits, which only floating dtypes hold, would be objects.
    number = np.asarray(float(value) if dtypes.is_float(t.dtype) and not isinstance(value, tuple) else value)
    with np.errstate(over="ignore"):
        host = from_numpy(number.astype(dtypes.to_numpy(t.dtype)), copy=True)
    return host if t.device is CPU else allocation.copy_to(host, t.device)
