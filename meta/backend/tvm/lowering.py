"""TVM's lowering of scheduled functions, with changes before it, before its last passes and after them: of divisions in
indices and of bfloat16; of buffers and launches; and the expansion of random bits, and registers for nested values.

A function is walked once for what the changes look for, so that those that do not concern it take no time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.intrinsic import dtype_of
from meta.backend.tvm.te.dots import DOT, expand_dots
from meta.backend.tvm.te.philox import PHILOX
from meta.backend.tvm.te.philox_expansion import expand, share_blocks
from meta.backend.tvm.workarounds.bfloat16 import bits_of_bfloat16, serialize_bfloat16_copies
from meta.backend.tvm.workarounds.bool_vectors import choose_bools_in_variables, store_bools_as_bytes
from meta.backend.tvm.workarounds.cuda_text import in_cuda_text
from meta.backend.tvm.workarounds.empty_grids import LAUNCH, without_empty_grids
from meta.backend.tvm.workarounds.floors import truncate_offset_floors
from meta.backend.tvm.workarounds.loop_partition import OPTIONS
from meta.backend.tvm.workarounds.registers import shared_values_in_registers, values_in_registers
from meta.backend.tvm.workarounds.small_buffers import small_buffers_on_stack
from meta.records import record

_NAME: Final = "meta"
SHRUNK: Final = "meta.shrunk_buffers"
"""The attribute of functions whose buffers need not be shrunk."""
_OF_GPUS: Final = ("s_tir.InjectVirtualThread", "s_tir.InjectPermutedLayout")
"""Passes of TVM for what only schedules of GPUs have."""
_COMMON_EXPRESSIONS: Final = "tirx.CommonSubexprElim"
_ENTRY: Final = "tirx.is_entry_func"
_ASSERTS: Final = "meta.asserts"


def options(*, disabled: Sequence[str] = ()) -> Any:
    """The context of TVM's passes in which functions are lowered by `pipeline`. disabled: passes to leave out.

    LLVM and NVRTC find common expressions. TVM's pass binds an expression that several `Let` values share inside the
    scope of one of them."""
    return tvm.PassContext(disabled_pass=[*disabled, _COMMON_EXPRESSIONS], config=OPTIONS)


@cache
def pipeline(*, checks: bool) -> str:
    """The name of TVM's pipeline with this package's changes, registered with TVM on first use.

    checks: functions check the types and shapes of their arguments. These checks of TVM are half of the machine code of
    a program for the CPU and a quarter of LLVM's time; assertions that functions have themselves always stay."""
    name = _NAME + "_with_checks" * checks
    tvm.register_tir_pipeline(name, lambda: _pipeline(checks=checks))
    return name


def needless_passes(functions: Iterable[Any], target: tvm.Target) -> list[str]:
    """The slow passes of TVM that change none of `functions`: on CPUs the passes for virtual threads and for shared
    memory; for functions without buffers, or with small ones, the pass that shrinks buffers, which takes a tenth of the
    time in which a kernel is compiled."""
    shrinking = [] if any(map(_has_large_buffers, functions)) else ["s_tir.CompactBufferAllocation"]
    return [*shrinking, *(_OF_GPUS if str(target.kind.name) == "llvm" else ())]


def _has_large_buffers(func: tvm.PrimFunc) -> bool:
    """Whether a function may allocate buffers that hold more than is used at a time."""
    if func.attrs and SHRUNK in func.attrs:
        return False
    buffers: list[Any] = []
    tvm.structural_walk(
        func, [(tvm.SBlock, lambda block: buffers.extend(block.alloc_buffers)), (tirx.AllocBuffer, buffers.append)]
    )
    return bool(buffers)


def _pipeline(*, checks: bool) -> tuple[Any, Any, Any]:
    lower, finalize_host, finalize_device = tvm.get_tir_pipeline("default")
    removal = [] if checks else [tvm.module_pass(_without_checks, opt_level=0, name="meta.RemoveChecks")]
    before = _BEFORE if checks else (_Change(_with_note_of_assertions, ("AssertStmt",)), *_BEFORE)
    return (
        tvm.Sequential([_changes("BeforeLowering", *before), lower]),
        lambda: tvm.Sequential(
            [*removal, _changes("OfHost", *_OF_HOST), finalize_host(), _changes("EndOfHost", *_END_OF_HOST)]
        ),
        lambda: tvm.Sequential(
            [_changes("OfDevice", *_OF_DEVICE), finalize_device(), _changes("EndOfDevice", *_END_OF_DEVICE)]
        ),
    )


def _with_note_of_assertions(func: tvm.PrimFunc) -> Any:
    """`func`, which has assertions before TVM adds those on arguments, with an attribute that says so."""
    return func.with_attr(_ASSERTS, True)


def _without_checks(module: tvm.IRModule, _context: Any) -> Any:
    """The module without the assertions of the functions that had none of their own."""
    functions = dict(module.functions.items())
    checks = {name: f for name, f in functions.items() if isinstance(f, tvm.PrimFunc) and _ASSERTS not in f.attrs}
    functions.update(tirx.transform.SkipAssert()(tvm.IRModule(checks)).functions.items())
    return tvm.IRModule(functions, attrs=module.attrs)


def _without_entry(func: tvm.PrimFunc) -> Any:
    """`func` without the attribute for which TVM exports the only function of a module a second time, as "main", with
    all its code for the arguments."""
    return func.without_attr(_ENTRY) if func.attrs and _ENTRY in func.attrs else func


@record
class _Change:
    """A change of a function. looks_for: it concerns only functions of whose `_contents` one begins with one of these
    texts; (): all functions."""

    run: Callable[[Any], Any]
    looks_for: tuple[str, ...] = ()


_BEFORE: Final = (
    _Change(truncate_offset_floors, ("FloorDiv", "FloorMod")),
    _Change(serialize_bfloat16_copies, ("bfloat16",)),
    _Change(bits_of_bfloat16, ("bfloat16",)),
)
_OF_HOST: Final = (
    _Change(small_buffers_on_stack, ("AllocBuffer",)),
    _Change(without_empty_grids, (LAUNCH,)),
    _Change(values_in_registers, ("Let",)),
)
_RANDOM_BITS: Final = _Change(expand, (PHILOX,))
_END_OF_HOST: Final = (
    _Change(_without_entry),
    _Change(expand_dots, (DOT,)),
    _Change(share_blocks, (PHILOX,)),
    _RANDOM_BITS,
    _Change(values_in_registers, ("Let",)),
    _Change(choose_bools_in_variables, ("Let",)),
)
_OF_DEVICE: Final = (_Change(shared_values_in_registers, ("Let",)),)
_END_OF_DEVICE: Final = (_RANDOM_BITS, _Change(store_bools_as_bytes, ("boolx",)), _Change(in_cuda_text))


def _changes(name: str, *changes: _Change) -> Any:
    """A pass that makes those changes of each function of a module that concern it."""

    def run(module: tvm.IRModule, _context: Any) -> Any:
        functions = {n: _changed(f, changes) if isinstance(f, tvm.PrimFunc) else f for n, f in module.functions.items()}
        return tvm.IRModule(functions, attrs=module.attrs)

    return tvm.module_pass(run, opt_level=0, name=f"meta.{name}")


def _changed(func: tvm.PrimFunc, changes: Sequence[_Change]) -> Any:
    found: set[str] | None = None
    for change in changes:
        if change.looks_for:
            found = _contents(func) if found is None else found
            if not any(text.startswith(change.looks_for) for text in found):
                continue
        before, func = func, change.run(func)
        found = found if func.same_as(before) else None
    return func


def _contents(func: tvm.PrimFunc) -> set[str]:
    """What changes of a function look for: names of the operators that it calls, of kinds of its nodes, and of the
    dtypes of parameters, casts and stored values."""
    found = {str(param.ty.dtype) for param in func.params if isinstance(param.ty, tvm.BufferType)}
    kinds = (tirx.Let, tirx.FloorDiv, tirx.FloorMod, tirx.AssertStmt, tirx.AllocBuffer)
    tvm.structural_walk(
        func,
        [
            (kinds, lambda node: found.add(type(node).__name__)),
            (tvm.Call, lambda call: found.add(getattr(call.op, "name", ""))),
            (tirx.Cast, lambda cast: found.update((dtype_of(cast), dtype_of(cast.value)))),
            (tvm.BufferStore, lambda store: found.add(dtype_of(store.value))),
        ],
    )
    return found
