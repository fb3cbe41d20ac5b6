"""From a program that is ready to be lowered to a runtime module or a shared library.

The kernels of large programs are compiled in parallel: by threads for the CPU, and for a GPU by several processes,
since NVRTC compiles one kernel at a time in each (see `meta.backend.tvm.parallel`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from meta import dtype as dtypes
from meta import progress
from meta._generated import limits
from meta.backend.cuda import memory_pool
from meta.backend.memory import allocation
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import library
from meta.backend.tvm.library import compiling
from meta.backend.tvm.lowering import options, pipeline
from meta.backend.tvm.parallel import processes
from meta.backend.tvm.parallel.serialization import UntransferableError, to_bytes
from meta.backend.tvm.parallel.worker import compile_functions
from meta.backend.tvm.workarounds.parameter_sizes import solve_parameter_sizes
from meta.vm.lower.calls import RELEASE
from meta.vm.lower.choose import Choice, Source
from meta.vm.lower.translate import Lowered, lower
from meta.vm.plan.fusion import sequence
from meta.vm.plan.pipeline import Lift, Planned, plan


def plan_source(
    source: Source, *, fuse: bool, lowered: Lowered | None = None, arena: bool = False, lift: Lift | None = None
) -> Planned:
    """The program lowered and planned. lowered: its Relax module, where it exists already.
    arena: the caller provides the memory of a program of straight-line code.  lift: see `plan`."""
    progress.stage("lower operators")
    with source.compiling():
        lowered = lowered or lower(source)
        with compiling("vm"):
            return plan(source, lowered, source.target, fuse=fuse, arena=arena, lift=lift)


def build_module(source: Source, planned: Planned, *, mode: str = "") -> Any:
    """The runtime module of the program. mode: "compiled" or "bytecode", by default by the size of the program.

    Kernels do not check their arguments, which the program has checked or allocated, if their results are proved to
    have the declared shapes: LLVM takes 30 s for the checks of 240 tensors of a GPU."""
    mode = mode or execution_mode(planned)
    progress.stage("generate code")
    target = source.target
    with compiling("vm"), target, options():
        module = finish(planned, static=source.static, releases=mode == "bytecode")
        passes = pipeline(checks=planned.checks)
        return tvm.relax_build(module, target=target, relax_pipeline=None, tir_pipeline=passes, exec_mode=mode).mod


def finish(planned: Planned, *, static: bool, releases: bool = True) -> Any:
    """The module in the form that code is generated from.

    static: no symbolic sizes. Then nothing needs to be freed before the end of a call, since the plan already lets
    tensors share storage; with symbolic sizes every tensor is freed after its last use.
    releases: with a function that returns nothing, whose call has bytecode let go of the results of the call before."""

    module = planned.module
    if releases:
        nothing = tvm.RelaxFunction([], tvm.RelaxTuple([]), tvm.TupleType([])).with_attr("global_symbol", RELEASE)
        release = tvm.relax_transform.Normalize()(tvm.IRModule({tvm.GlobalVar(RELEASE): nothing}))
        functions = dict(module.functions.items()) | dict(release.functions.items())
        module = tvm.IRModule(functions, attrs=module.attrs)
    module = sequence("LowerAllocTensor", *([] if static else ["KillAfterLastUse"]))(module)
    module = module if static else solve_parameter_sizes(module)
    return sequence("LowerRuntimeBuiltin", "ComputePrimValue", "VMShapeLower", "AttachGlobalSymbol")(module)


def execution_mode(planned: Planned) -> str:
    """ "compiled" or "bytecode", by the size of the largest function."""
    functions = [f for f in planned.module.functions.values() if isinstance(f, tvm.RelaxFunction)]
    sizes = (len(f.params) + sum(len(block.bindings) for block in f.body.blocks) for f in functions)
    return "compiled" if max(sizes, default=0) <= limits.COMPILED_BINDINGS else "bytecode"


# --- in parallel ------------------------------------------------------------------------------------------------------

BY_THREADS: Final = frozenset(("cpu",))
"""Kinds of devices for which threads compile."""
_SHARE: Final = 4
"""Requests for each process or thread, so that those with small kernels take more of them."""


def worth_processes(kernels: int, device: str) -> bool:
    """Whether several processes should compile a program of as many kernels, or operators before they are fused."""
    fewest = max(limits.PROCESSES_FROM, limits.KERNELS_PER_PROCESS // max(processes.jobs() - 1, 1))
    loads = device == "cpu" or tvm.get_global_func(_LOADER.format(device), allow_missing=True) is not None
    return device not in BY_THREADS and _worth_parts(kernels, fewest) and loads


def _worth_parts(kernels: int, fewest: int) -> bool:
    return processes.jobs() > 1 and kernels >= fewest and library.linker() is not None


_LOADER: Final = "ffi.Module.load_from_bytes.{}"
"""TVM's function from the code of kernels for a GPU to a module; its runtime for that GPU registers it."""


def linked(source: Source, planned: Planned) -> bytes | None:
    """The shared library of a program, compiled in parallel; None if its kernels are too few."""
    kernels = {str(name.name_hint): f for name, f in planned.module.functions.items() if isinstance(f, tvm.PrimFunc)}
    if source.device.kind in BY_THREADS:
        if not _worth_parts(len(kernels), limits.KERNELS_FOR_A_WORKER):
            return None
        with compiling("vm"):
            try:
                return _by_threads(source, planned, set(kernels))
            except OSError:  # no space for files of machine code: one thread compiles into memory
                return None
    return _by_processes(source, planned, set(kernels)) if worth_processes(len(kernels), source.device.kind) else None


def _by_threads(source: Source, planned: Planned, names: set[str]) -> bytes | None:
    from meta.backend.tvm.parallel import threads

    target = source.target
    module = finish(planned, static=source.static)
    calls = Counter(dict.fromkeys(names, 1)) if execution_mode(planned) == "bytecode" else _calls(module)
    kernels = {str(name.name_hint): f for name, f in module.functions.items() if name.name_hint in names}
    weights = {name: _stores(f) for name, f in kernels.items()}
    once = {name: weight for name, weight in weights.items() if calls[name] < 2}
    compiles_calls = execution_mode(planned) == "compiled" and 2 * sum(once.values()) > sum(weights.values())
    if not compiles_calls:
        once = weights
    count = processes.jobs()
    requests = [{name: kernels[name] for name in share} for share in _shares(once, _SHARE * count)]
    codes: list[Any] = [None] * len(requests)
    with threads.compiling_all(requests, target, count, checks=planned.checks) as compiled:
        progress.stage("generate code", total=len(kernels))
        builder, host = _calling_part(module, set(once), target, compiled=compiles_calls, checks=planned.checks)
        for number, code in compiled:
            codes[number] = code
            for _ in requests[number]:
                progress.advance()
    progress.stage("link")
    return library.link(tvm.vm_link(builder, target, host, [], {}), codes)


def _calls(module: Any) -> Counter[str]:
    """How many calls of each kernel there are, also in branches."""
    calls: Counter[str] = Counter()

    def count(call: Any) -> None:
        if isinstance(call.op, tvm.GlobalVar):
            calls[str(call.op.name_hint)] += 1

    for function in module.functions.values():
        if isinstance(function, tvm.RelaxFunction):
            tvm.structural_walk(function, (tvm.RelaxCall, count))
    return calls


def _stores(function: Any) -> int:
    """A measure of the time in which LLVM compiles a function: the statements that write."""
    stores: list[Any] = []
    tvm.structural_walk(function, (tvm.BufferStore, stores.append))
    return 1 + len(stores)


def _by_processes(source: Source, planned: Planned, names: set[str]) -> bytes | None:
    """A part whose process dies or fails is compiled by this process, which raises its error."""
    processes.start(len(names))
    if not processes.running():
        return None
    progress.stage("send kernels to processes")
    target = source.target
    module = finish(planned, static=source.static)
    kernels = {str(name.name_hint): f for name, f in module.functions.items() if name.name_hint in names}
    try:
        written = {name: to_bytes(f) for name, f in kernels.items()}
    except UntransferableError:
        return None
    text = str(tvm.save_json(target))
    shares = _shares({name: len(data) for name, data in written.items()}, _SHARE * max(processes.running(), 1))
    requests = [(text, planned.checks, [(name, written[name]) for name in share]) for share in shares]
    codes: list[Any] = [None] * len(requests)

    def meanwhile() -> None:
        progress.stage("choose plans of libraries")
        run_first_calls(source)
        progress.stage("generate code", total=len(kernels))

    for number, code in processes.compile_all(requests, meanwhile):
        codes[number] = compile_functions(*requests[number]) if code is None else code
        for _ in requests[number][2]:
            progress.advance()
    progress.stage("link")
    builder, host = _calling_part(module, kernels, target, compiled=False, checks=planned.checks)
    for _, imports in codes:
        for kind, data in imports:
            host.import_module(tvm.get_global_func(_LOADER.format(kind))(data))
    return library.link(tvm.vm_link(builder, target, host, [], {}), [code for code, _ in codes])


def run_first_calls(source: Source) -> None:
    """Call each library kernel with a slow start once, on uninitialised tensors, while other processes compile.

    In its first call, a convolution of cuDNN measures plans, an attention in Triton is compiled, and a product starts
    cuBLAS. Later calls, including the program's, use what was found. Where that fails, for lack of memory for instance,
    the program's own call comes first, and reports the error."""
    if source.device.kind == "cpu":
        return
    slow = [c for c in source.choices.packed().values() if c.implementation.options.get("slow_start")]
    slow = [c for c in slow if _takes_any_values(c)]
    for info, implementation in ((c.info, c.implementation) for c in slow):
        with suppress(Exception):
            tensors = [allocation.allocator(t)() for t in (*info.sources(), *info.destinations())]
            implementation.dialect.kernel(implementation, info)(*tensors)
    if slow:
        memory_pool.empty_cache(source.device)  # the program's tensors have other sizes


def _takes_any_values(choice: Choice) -> bool:
    """Whether the operands are floats of known sizes, and none of them is a position."""
    tensors = (*choice.info.tensors(), *choice.info.outputs())
    return not choice.checked and all(t.is_static and t.dtype in dtypes.FLOATS for t in tensors)


def _shares(weights: Mapping[str, int], count: int) -> list[list[str]]:
    """Names divided among requests of similar weights, the heaviest request first."""
    shares: list[list[str]] = [[] for _ in range(min(count, len(weights)))]
    sums = [0] * len(shares)
    for name, weight in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
        lightest = sums.index(min(sums))
        shares[lightest].append(name)
        sums[lightest] += weight
    order = sorted(range(len(shares)), key=lambda i: -sums[i])
    return [shares[i] for i in order]


def _calling_part(
    module: Any, elsewhere: Iterable[str], target: Any, *, compiled: bool, checks: bool
) -> tuple[Any, Any]:
    """The builder of the executable and the module of what calls kernels, without the kernels compiled `elsewhere`.

    compiled: LLVM compiles the calls, each of another kernel: TVM declares a kernel of another module once for each
    call, and all declarations but the first have names that no code defines. Bytecode, which makes them instead, costs
    a tenth of a microsecond more for a call."""
    builder, others = tvm.ExecBuilder(), set(elsewhere)
    functions = (tvm.vm_functions if compiled else tvm.vm_bytecode)(builder, module).functions
    rest = {
        name: _with_exported_names(f, others) if compiled else f
        for name, f in functions.items()
        if isinstance(f, tvm.PrimFunc) and name.name_hint not in others
    }
    with options():
        host = tvm.build_tir(tvm.IRModule(rest or {_EMPTY: _empty()}), target, pipeline(checks=checks))
    return builder, host


_CALL: Final = "tirx.tvm_call_cpacked"
"""TVM's operator for calls of functions of the same library by name."""
_EXPORTED: Final = "__tvm_ffi_"
"""The prefix of exported names. In calls, TVM adds it only for functions of the same module."""


def _with_exported_names(function: Any, others: set[str]) -> Any:
    """`function` with calls of `others` by the names under which their modules export them. Functions of C may have the
    same names, such as `sin`."""

    def rename(call: Any) -> Any:
        if getattr(call.op, "name", "") != _CALL or call.args[0].value not in others:
            return call
        name = tvm.StringImm(_EXPORTED + call.args[0].value)
        return tvm.Call(call.op, [name, *list(call.args)[1:]], call.attrs, call.ty_args, call.span, call.ty)

    return tvm.structural_map(function, (tvm.Call, rename))


_EMPTY: Final = "meta_empty"


def _empty() -> Any:
    """A function that does nothing: TVM finds the code of the library, and so of the kernels, by the code of a
    module."""
    body = tvm.tirx.Evaluate(tvm.tirx.const(0, "int32"))
    return tvm.PrimFunc([], body).with_attr("global_symbol", _EMPTY)
