"""Kernels from TE computes: a specification is built to a packed function on tensors."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from meta.backend.eviction import report_eviction
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import hooks, library
from meta.backend.tvm import target as targets
from meta.backend.tvm.compute import source_key
from meta.backend.tvm.library import compiling
from meta.backend.tvm.numbers import NeedsValueError, NumberSpec, Parameter, Parameters, held
from meta.backend.tvm.position_check import with_position_check
from meta.backend.tvm.spec import KernelSpec, SizeSpec, TensorSpec
from meta.backend.tvm.workarounds import heap
from meta.cache import DiskCache, default_cache, default_max_kernels
from meta.errors import KernelError, MetaError, line_of_function, raised
from meta.locks import new_lock
from meta.modes import scoped
from meta.progress import without_collection
from meta.records import record

Kernel = Callable[..., None]
"""`kernel(*parameters, *inputs, *outputs)` on compact tensors; it writes the outputs. parameters: the numbers that it
takes at run time."""


UNPROVED: Final = "meta.unproved"
"""The attribute of functions whose results have extents that were not proved to equal the specification's."""


@record
class Unscheduled:
    """The TIR function of a compute before it is scheduled, over (parameters..., inputs..., outputs...).

    Attributes:
        unproved: the error for results whose extents were not proved to equal the specification's; the kernel compares
            them at each call.
    """

    function: Any
    parameters: tuple[Parameter, ...]
    unproved: KernelError | None


@record
class Compiled:
    """A compiled kernel, and the parameters that it takes before its tensors."""

    function: Kernel
    parameters: tuple[Parameter, ...] = ()


def unscheduled(spec: KernelSpec) -> Unscheduled:
    """The unscheduled TIR function of `spec`, over (parameters..., inputs..., outputs...).

    Raises:
        KernelError: the compute fails, or its results disagree with `spec.outs` (see `check_results`).
        NeedsValueError: the compute needs the value of an argument that is a `NumberSpec`.
    """
    call = ComputeCall(spec)
    with call.errors():
        results = spec.compute(*call.arguments, **call.options)
    return call.function(results)


class ComputeCall:
    """A call of the compute of `spec`, by the caller: its arguments, and the function of its results."""

    def __init__(self, spec: KernelSpec) -> None:
        tvm.load()
        self.spec = spec
        self._parameters = Parameters("float64" if "float64" in _dtypes(spec) else "float32")
        self._extents: dict[str, Any] = {}
        self._inputs: list[Any] = []
        self.arguments = [self._argument(i, value) for i, value in enumerate(spec.args)]
        self._outs = tuple(replace(out, shape=self._dims(out)) for out in spec.outs)
        accepted = inspect.signature(spec.compute).parameters
        options = {"out": self._outs, "kind": spec.target, "checked": spec.positions is not None}
        self.options = {name: value for name, value in options.items() if name in accepted}

    def _dims(self, tensor: TensorSpec) -> tuple[Any, ...]:
        index = self.spec.index
        return tuple(
            tvm.IntImm(index, d)
            if isinstance(d, int)
            else self._extents.setdefault(d, tvm.te.var(identifier(d), index))
            for d in tensor.shape
        )

    def _placeholder(self, tensor: TensorSpec) -> Any:
        self._inputs.append(tvm.te.placeholder(self._dims(tensor), tensor.dtype, f"x{len(self._inputs)}"))
        return self._inputs[-1]

    def _argument(self, position: int, value: Any) -> Any:
        if isinstance(value, NumberSpec):
            return self._parameters.argument(position, value)
        if isinstance(value, SizeSpec):
            self._inputs.append(tvm.te.var(f"size{len(self._inputs)}", "int64"))
            return self._inputs[-1]
        if isinstance(value, TensorSpec):
            return self._placeholder(value)
        if _is_tensors(value):
            return [self._placeholder(t) for t in value]
        # TVM refuses literals beyond the dtype that they are computed in.
        return held(value, self._parameters.dtype) if isinstance(value, float) or _is_wide(value) else value

    @contextmanager
    def errors(self) -> Generator[None, None, None]:
        """Report other errors in the block, which runs the compute, as KernelError."""
        try:
            yield
        except (MetaError, NeedsValueError):
            raise
        except Exception as error:
            raise raised(KernelError, self.spec.name, "its TVM compute", error) from error

    def function(self, results: Any) -> Unscheduled:
        """The function of the compute's results. Raises KernelError if they disagree with the specification."""
        parameters = self._parameters
        if isinstance(results, tvm.PrimFunc):
            return Unscheduled(results, parameters.all, None)
        results = list(results) if isinstance(results, Sequence) else [results]
        unproved = check_results(self.spec, results, self._outs)
        buffers = [*self._inputs, *distinct_outputs(results, self._inputs)]
        tensors = [*parameters.variables, *buffers]
        function = tvm.create_prim_func(tensors)
        # Extents from Python numbers are 32-bit, and functions with 64-bit indices reject buffers of such extents.
        index = self.spec.index
        if not all(str(d.ty.dtype) == index for t in buffers if hasattr(t, "shape") for d in t.shape):
            function = tvm.create_prim_func(tensors, index_dtype_override=index)
        if unproved is not None:
            function = function.with_attr(UNPROVED, True)
        return Unscheduled(function, parameters.all, unproved)


def _dtypes(spec: KernelSpec) -> set[str]:
    specs = [t for arg in (*spec.args, spec.outs) for t in (arg if _is_tensors(arg) else (arg,))]
    return {t.dtype for t in specs if isinstance(t, TensorSpec)}


def build(spec: KernelSpec) -> Compiled:
    """The compiled kernel, from memory, from disk or newly built. Concurrent calls for one kernel build it once."""
    key = spec_key(spec)
    kernel = _in_memory(key)
    if kernel is not None:
        return kernel
    with _building, scoped(cpu=None, tuning=None, knobs=None):
        kernel = _in_memory(key)
        if kernel is None:
            kernel = _load_or_build(spec)
            _add(key, kernel)
    return kernel


def _in_memory(key: Any) -> Compiled | None:
    """The kernel in memory, which counts as used then."""
    kernel = _kernels.get(key)
    if kernel is None and (kernel := _older.get(key)) is not None:
        _kernels[key] = kernel
    return kernel


def spec_key(spec: KernelSpec) -> Any:
    """The key of `spec` in the memory of this process. It contains `spec`, so that the compute lives as long as its id
    is in use; `repr` distinguishes equal numbers (0.0 and -0.0, 1 and True)."""
    return spec, repr(spec.args), "" if spec.key else id(spec.compute)


def disk_key(spec: KernelSpec) -> str:
    """The key of the kernel of `spec` on disk; the compute of a spec without a key is run for it."""
    with scoped(cpu=None, tuning=None):
        return _symbol(spec, None if spec.key else unscheduled(spec))


def digest(ir: Any) -> str:
    """A digest of a TVM function or module by its content: the same in every process, without source locations.

    The text has all numbers exactly, but omits strings of several lines and the data of constants, which the structural
    hash covers. (TVM's JSON does not work: `save_json` of an expression crashes in 0.27.)"""
    return hashlib.sha256(f"{tvm.structural_hash(ir)}\0{ir.script()}".encode()).hexdigest()


def compute_key(spec: KernelSpec) -> str:
    """The key of the choices of a compute: its operator and types, without its source."""
    facts = repr((spec.name, spec.args, spec.outs, spec.index))
    return f"{identifier(spec.name)}_{hashlib.sha256(facts.encode()).hexdigest()[:32]}"


def schedule_key(function: Any) -> str:
    """The key of the choices of a schedule: the function to be scheduled, whatever its buffers are called."""
    return f"schedule_{int(tvm.structural_hash(function)) & (1 << 64) - 1:016x}"


def forget(compute: Callable[..., Any]) -> None:
    """Drop the kernels of a compute in memory."""
    with _building:
        for kernels in (_kernels, _older):
            for key in [key for key in kernels if key[0].compute is compute]:
                del kernels[key]


# One thread at a time may use TVM's compiler; the lock also makes concurrent requests for one kernel build it once.
_building = new_lock("kernels")
_kernels: dict[Any, Compiled] = {}
"""The kernels that were asked for since the last eviction."""
_older: dict[Any, Compiled] = {}
"""Earlier kernels; the next eviction drops those that nothing has asked for."""


def _add(key: Any, kernel: Compiled) -> None:
    """Put a kernel into memory. The caller holds the lock.

    Calls do not record that they use a kernel. When half of the bound is new since the last eviction, runners are
    dropped, so that those in use ask for their kernels again, and so are the kernels that nothing asked for since."""
    if len(_kernels) >= max(default_max_kernels() // 2, 1):
        _evict()
    _kernels[key] = kernel


def _evict() -> None:
    """Start a new half of the bound. The caller holds the lock."""
    dropped = {key: kernel for key, kernel in _older.items() if key not in _kernels}
    _older.clear()
    _older.update(_kernels)
    _kernels.clear()
    report_eviction()
    if any(spec.target == "cuda" for spec, *_ in dropped):
        from meta.backend.cuda.driver import synchronize_all

        synchronize_all()  # a kernel that is running must stay loaded


def _load_or_build(spec: KernelSpec) -> Compiled:
    """The kernel from disk, or newly built and then stored there. The caller holds the lock."""
    cache = default_cache()
    source = None if spec.key else unscheduled(spec)
    symbol = _symbol(spec, source)
    kernel = None if cache is None else _load(cache, symbol)
    if kernel is not None:
        return kernel
    if cache is None:
        return _build(spec, symbol, source, None)
    with cache.building(symbol):
        return _load(cache, symbol) or _build(spec, symbol, source, cache)


def _build(spec: KernelSpec, symbol: str, source: Unscheduled | None, cache: DiskCache | None) -> Compiled:
    heap.keep_tables()
    with hooks.prepared_meanwhile(), without_collection():
        source = source or unscheduled(spec)
        module = _compile(spec, symbol, source)
    if cache is not None:
        stored = library.store(cache, symbol, module)
        module = module if stored is None else stored
        entries = [[p.expression, p.dtype] for p in source.parameters]
        cache.put(symbol, json.dumps(entries).encode(), _PARAMETERS)
    return Compiled(module[symbol], source.parameters)


def _compile(spec: KernelSpec, symbol: str, source: Unscheduled) -> Any:
    """The runnable module with the kernel as the function `symbol`."""
    from meta.backend.tvm.schedule import patterns  # kernels from disk do without it

    if source.unproved is not None and not spec.key:
        raise source.unproved  # of a compute of users: a kernel for numbers as sizes shows whether it is wrong
    target = targets.target(spec.target)
    with compiling(spec.name):
        scheduled = patterns.schedule(source.function, spec.pattern, target)
        if spec.positions is not None:
            scheduled = with_position_check(scheduled, spec, source.parameters)
        return library.compile_functions({symbol: scheduled}, target, checks=source.unproved is not None)


_PARAMETERS = ".in"  # suffix of the entry with the parameters of a kernel, beside the one with its library


def _load(cache: DiskCache, symbol: str) -> Compiled | None:
    entries = cache.read(symbol, _PARAMETERS)
    if entries is None:
        return None
    try:
        parameters = tuple(Parameter(expression, dtype) for expression, dtype in json.loads(entries))
    except (ValueError, TypeError):
        return None
    hooks.prepare()
    module = library.load(cache, symbol)
    return None if module is None else Compiled(module[symbol], parameters)


def _symbol(spec: KernelSpec, source: Unscheduled | None) -> str:
    """The kernel's symbol, also its key on disk: a digest of everything that the machine code and the values of its
    parameters depend on.

    source: the function of a spec without a key."""
    compute: Any = (spec.key, spec.args, spec.outs)
    if source is not None:
        parameters = source.parameters
        compute = (digest(source.function), parameters) if parameters else digest(source.function)
    facts = (spec.name, compute, spec.pattern, spec.index, targets.identity(spec.target), _source_of(spec.positions))
    return f"{identifier(spec.name)}_{hashlib.sha256(repr(facts).encode()).hexdigest()[:32]}"


def _source_of(rule: Callable[..., Any] | None) -> str:
    """A hash of the source of a rule, "" without one."""
    return "" if rule is None else source_key(rule.__code__.co_filename)


def identifier(text: str) -> str:
    """`text` as a C identifier."""
    name = "".join(c if c.isascii() and c.isalnum() else "_" for c in text)
    return name if name[:1].isalpha() else f"v_{name}"


def _is_wide(argument: Any) -> bool:
    """Whether an argument is an int of more than 64 bits, which only floating dtypes hold."""
    return isinstance(argument, int) and not -(1 << 63) <= argument < 1 << 63


def _is_tensors(argument: Any) -> bool:
    return isinstance(argument, tuple) and bool(argument) and all(isinstance(t, TensorSpec) for t in argument)


# --- the results of computes -----------------------------------------------------------------------------------------


def check_results(spec: KernelSpec, results: list[Any], outs: Sequence[TensorSpec]) -> KernelError | None:
    """Compare the results of a compute with their specification.

    outs: the specification, with TVM's expressions for the extents.

    Returns None if all extents were proved equal, and otherwise the error for those that cannot be told apart.
    Raises KernelError if the results differ in number, rank, dtype or extents that are numbers."""

    def mismatch(problem: str) -> KernelError:
        location = line_of_function(spec.compute) or None
        return KernelError(spec.name, f"its TVM compute {problem}", "results of the declared types", location=location)

    if len(results) != len(outs):
        raise mismatch(f"returned {len(results)} tensors, the declaration says {len(outs)}")
    unproved: KernelError | None = None
    for i, (result, out) in enumerate(zip(results, outs, strict=True)):
        if not hasattr(result, "shape"):
            raise mismatch(f"returned {type(result).__name__} as result {i}, the declaration says a tensor")
        if str(result.dtype) != out.dtype:
            raise mismatch(f"returned {result.dtype} as result {i}, the declaration says {out.dtype}")
        shape, declared = _readable(result.shape), list(spec.outs[i].shape)
        if len(shape) == len(declared) and _equal_extents(result, out):
            continue
        error = mismatch(f"returned shape {shape} as result {i}, the declaration says {declared}")
        if len(shape) != len(declared) or any(map(_are_unequal_numbers, shape, declared)):
            raise error
        unproved = error
    return unproved


def _readable(shape: Any) -> list[Any]:
    return [int(d) if isinstance(d, tvm.IntImm) else d for d in shape]


def _are_unequal_numbers(a: Any, b: Any) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a != b


def _equal_extents(result: Any, out: TensorSpec) -> bool:
    """Whether a result has the extents of its specification, whatever the values of the symbols."""
    pairs = zip(result.shape, out.shape, strict=True)
    return all(a.same_as(b) or tvm.Analyzer().can_prove_equal(a, b) for a, b in pairs)


def distinct_outputs(results: list[Any], inputs: list[Any]) -> list[Any]:
    """The results, with a copy of each that is an input or an earlier result: an output buffer has one producer."""
    buffers = list(inputs)
    outputs: list[Any] = []
    for result in results:
        is_new = not any(result.same_as(t) for t in buffers)
        outputs.append(result if is_new else _copy(result))
        buffers.append(result)
    return outputs


def _copy(tensor: Any) -> Any:
    return tvm.te.compute(tensor.shape, lambda *i: tensor(*i), name="copy")
