"""Every TVM name that `meta` uses, spelled once.

TVM renames modules in most releases (`tir` became `tirx`, `arith` became `sym`, `TensorStructInfo` became
`TensorType` on the way to 0.27), so the rest of the code imports TVM names from here. `NAMES` maps each name to its
module; a name is resolved at its first use, so importing this module does not import TVM. The contract test
(`tests/python/backend/tvm/test_adapter.py`) resolves all names, and every attribute of a TVM module that the code uses,
so it lists what an upgrade of TVM broke.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from meta.backend.tvm import runtime

if TYPE_CHECKING:
    from tvm.ir import Call as Call
    from tvm.ir import Expr as Expr
    from tvm.ir import IRModule as IRModule
    from tvm.ir import Object as Object
    from tvm.ir import TensorLoad as TensorLoad
    from tvm.s_tir import LoopRV as LoopRV
    from tvm.s_tir import SBlock as SBlock
    from tvm.s_tir import SBlockRealize as SBlockRealize
    from tvm.s_tir import Schedule as Schedule
    from tvm.target import Target as Target
    from tvm.te import Tensor as Tensor
    from tvm.tirx import Buffer as Buffer
    from tvm.tirx import BufferStore as BufferStore
    from tvm.tirx import For as For
    from tvm.tirx import PrimFunc as PrimFunc
    from tvm.tirx import SeqStmt as SeqStmt
    from tvm.tirx import Var as Var

SUPPORTED: Final = "0.27"
"""The TVM release series of the names below."""

NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        # Packages and modules, used as `te.compute`, `topi.nn.conv2d`, ...
        "tvm": "tvm",
        "ffi": "tvm_ffi",
        "te": "tvm.te",
        "topi": "tvm.topi",
        "tirx": "tvm.tirx",
        "s_tir": "tvm.s_tir",
        "dlight": "tvm.s_tir.dlight",
        "relax": "tvm.relax",
        "relax_transform": "tvm.relax.transform",
        "transform": "tvm.ir.transform",
        "block_transform": "tvm.s_tir.transform",
        "runtime": "tvm.runtime",
        # IR
        "IRModule": "tvm:IRModule",
        "PassContext": "tvm.ir.transform:PassContext",
        "Sequential": "tvm.ir.transform:Sequential",
        "module_pass": "tvm.ir.transform:module_pass",
        "Range": "tvm.ir:Range",
        "PointerType": "tvm.ir:PointerType",
        "PrimType": "tvm.ir:PrimType",
        "Op": "tvm.ir:Op",
        "GlobalVar": "tvm.ir:GlobalVar",
        "structural_equal": "tvm_ffi:structural_equal",
        "structural_hash": "tvm_ffi:structural_hash",
        "structural_mutate": "tvm_ffi:structural_mutate",
        "assert_structural_equal": "tvm.ir:assert_structural_equal",
        "save_json": "tvm.ir:save_json",
        "load_json": "tvm.ir:load_json",
        "Analyzer": "tvm.sym:Analyzer",
        "detect_linear_equation": "tvm.sym:detect_linear_equation",
        # Loop programs
        "PrimFunc": "tvm.tirx:PrimFunc",
        "Expr": "tvm.ir:Expr",
        "Var": "tvm.tirx:Var",
        "IntImm": "tvm.tirx:IntImm",
        "FloatImm": "tvm.tirx:FloatImm",
        "Buffer": "tvm.tirx:Buffer",
        "BufferType": "tvm.tirx.buffer:BufferType",
        "For": "tvm.tirx:For",
        "SBlock": "tvm.s_tir:SBlock",
        "SBlockRealize": "tvm.s_tir:SBlockRealize",
        "LoopRV": "tvm.s_tir.schedule:LoopRV",
        "Object": "tvm_ffi:Object",
        "TensorLoad": "tvm.ir.expr:TensorLoad",
        "Call": "tvm.ir:Call",
        "BufferStore": "tvm.tirx:BufferStore",
        "SeqStmt": "tvm.tirx:SeqStmt",
        "IndexMap": "tvm.tirx:IndexMap",
        "IterVar": "tvm.tirx:IterVar",
        "Tensor": "tvm.te:Tensor",
        "create_prim_func": "tvm.te:create_prim_func",
        "Schedule": "meta.backend.tvm.primitives:Schedule",
        "IRBuilder": "tvm.script.ir_builder:IRBuilder",
        "script_tirx": "tvm.script.ir_builder.tirx",
        "ScheduleError": "tvm.s_tir:ScheduleError",
        "read_write_region": "tvm.s_tir.analysis:get_sblock_read_write_region",
        "DefaultGPUSchedule": "tvm.s_tir.transform:DefaultGPUSchedule",
        # Targets and code generation
        "Target": "tvm.target:Target",
        "compile": "tvm:compile",
        "build_tir": "tvm.tirx:build",
        "get_tir_pipeline": "tvm.tirx:get_tir_pipeline",
        "register_tir_pipeline": "tvm.tirx.compilation_pipeline:register_tir_pipeline",
        "system_cpu": "tvm.target.codegen:llvm_get_system_cpu",
        "cpu_names": "tvm.target.codegen:llvm_get_cpu_archlist",
        "is_valid_cpu": "tvm.target.codegen:llvm_is_valid_cpu",
        "system_triple": "tvm.target.codegen:llvm_get_system_triple",
        "cpu_features": "tvm.target.codegen:llvm_get_cpu_features",
        "vector_width": "tvm.target.codegen:llvm_get_vector_width",
        "find_cuda_path": "tvm.support.nvcc:find_cuda_path",
        "compute_version": "tvm.support.nvcc:get_target_compute_version",
        "llvm_version": "tvm.target.codegen:llvm_version_major",
        # Run time
        "version": "tvm:__version__",
        "cpu": "tvm:cpu",
        "cuda": "tvm:cuda",
        "device": "tvm_ffi:device",
        "dtype": "tvm_ffi:dtype",
        "Shape": "tvm_ffi:Shape",
        "NDTensor": "tvm_ffi:Tensor",
        "PackedFunction": "tvm_ffi:Function",
        "from_dlpack": "tvm_ffi:from_dlpack",
        "get_global_func": "tvm_ffi:get_global_func",
        # (DLPack's number of the kind, index) -> this thread's stream; the setter returns the previous stream
        "current_stream": "tvm_ffi.core:_env_get_current_stream",
        "set_stream": "tvm_ffi.core:_env_set_current_stream",
        "register_global_func": "tvm_ffi:register_global_func",
        "type_index": "tvm_ffi.core:_object_type_key_to_index",
        "tensor": "tvm.runtime:tensor",
        "empty": "tvm.runtime:empty",
        "Module": "tvm.runtime:Module",
        "load_library": "tvm_ffi:load_module",
        "TVMError": "tvm:error.InternalError",
        # Relax
        "BlockBuilder": "tvm.relax:BlockBuilder",
        "RelaxVar": "tvm.relax:Var",
        "DataflowVar": "tvm.relax:DataflowVar",
        "DataflowBlock": "tvm.relax:DataflowBlock",
        "RelaxFunction": "tvm.relax:Function",
        "RelaxCall": "tvm.relax:Call",
        "RelaxTuple": "tvm.relax:Tuple",
        "RelaxTupleGetItem": "tvm.relax:TupleGetItem",
        "RelaxConstant": "tvm.ir:Constant",
        "RelaxIf": "tvm.relax:If",
        "SeqExpr": "tvm.relax:SeqExpr",
        "BindingBlock": "tvm.relax:BindingBlock",
        "VarBinding": "tvm.relax:VarBinding",
        "MatchCast": "tvm.relax:MatchCast",
        "ExternFunc": "tvm.relax:ExternFunc",
        "StringImm": "tvm.ir:StringImm",
        "ShapeExpr": "tvm.relax:ShapeExpr",
        "TensorType": "tvm.relax:TensorType",
        "ShapeType": "tvm.relax:ShapeType",
        "TupleType": "tvm.relax:TupleType",
        "FuncType": "tvm.relax:FuncType",
        "AnyType": "tvm.relax:AnyType",
        "update_type": "tvm.relax.expr:_update_type",
        "relax_const": "tvm.relax:const",
        "call_tir": "tvm.relax:op.call_tir",
        "call_tir_inplace": "tvm.relax:op.call_tir_inplace",
        "call_dps_packed": "tvm.relax:op.call_dps_packed",
        "call_pure_packed": "tvm.relax:op.call_pure_packed",
        "relax_build": "tvm.relax:build",
        "ExecBuilder": "tvm.relax:ExecBuilder",
        "VirtualMachine": "tvm.relax:VirtualMachine",
    }
)

FUNCTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # (shape: Shape, dtype: dtype, device: Device, scope: str | None) -> Tensor; takes 0.44 us, `empty` 3.7
        "alloc_tensor": "runtime.TVMTensorAllocWithScope",
        # (tensor, shape: Shape, dtype: dtype, byte_offset: int) -> Tensor over the same memory
        "create_view": "runtime.TVMTensorCreateView",
        # (array: Array, position: int) -> its element; takes 0.35 us, the array's own iterator 1.0 for each
        "array_item": "ffi.ArrayGetItem",
        # (source: Tensor, target: Tensor), each on any device
        "copy_from_to": "runtime.TVMTensorCopyFromTo",
        # (device, stream; 0: the default stream)
        "stream_sync": "runtime.Device_StreamSync",
        # (number of the kind, index, number of the attribute; 0: whether it exists)
        "device_attribute": "runtime.GetDeviceAttr",
        # (DLPack's number of the kind, index): sets the current device of this thread
        "set_device": "__tvm_set_device",
        "config_threadpool": "runtime.config_threadpool",
        "num_threads": "runtime.NumThreads",
        # frees what the pools of machines keep for further calls
        "clear_pools": "vm.builtin.memory_manager.clear",
        "register_op": "ir.RegisterOp",
        # (number of the type, name of a field, its value, ...) -> a node
        "make_object": "ffi.MakeObjectFromPackedArgs",
        # module -> the bytes of its imports as a tensor
        "pack_imports": "runtime.ModulePackImportsToTensor",
        # of root, pairs of a type's number and a callback, such pairs for regions of definitions, 0 (pre) or 1 (post)
        "map_structure": "ffi.StructuralMap",
        "walk_structure": "ffi.StructuralWalk",
        # the steps of `relax_build` before and after the build of the kernels
        "vm_bytecode": "relax.VMCodeGen",
        "vm_functions": "relax.VMTIRCodeGen",
        "vm_link": "relax.VMLink",
        # of scope, dtype, shape, strides, elem_offset, data_alignment, offset_factor, layout, allocated_addr, span
        "buffer_type": "tirx.BufferType",
    }
)
"""Names of functions in TVM's global registry."""


def resolve(name: str) -> Any:
    """Import and return the object named `name`.

    Raises:
        AttributeError: `name` is not in `NAMES` or `FUNCTIONS`, or this TVM does not have it.
        ImportError: TVM, or the module of the name, is not installed.
    """
    if name in FUNCTIONS:
        return _global_function(name)
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, path = NAMES[name].partition(":")
    value: Any = _import_module(module)
    for part in path.split(".") if path else ():
        value = getattr(value, part)
    return value


def unwrapped(value: Any) -> Any:
    """The object that a `Shape` or a `dtype` wraps. TVM's functions take it in their place and convert it faster, by
    0.09 and 0.02 us."""
    for name in ("_tvm_ffi_cached_object", "_tvm_ffi_dtype"):
        value = getattr(value, name, value)
    return value


def structural_map(root: Any, callbacks: Any) -> Any:
    """As `tvm_ffi.structural_map`, where a search for the types takes most of the time of a small expression."""
    return _global_function("map_structure")(root, _numbered(callbacks), (), 1)


def structural_walk(root: Any, callbacks: Any, *, order: str = "post") -> Any:
    """As `tvm_ffi.structural_walk`."""
    return _global_function("walk_structure")(root, _numbered(callbacks), (), int(order == "post"))


def _numbered(callbacks: Any) -> list[tuple[int, Any]]:
    """Pairs of a type's number and its callback. callbacks: (type or types, callback), or a list of such."""
    entries = [callbacks] if isinstance(callbacks, tuple) else callbacks
    pairs = [(t, run) for types, run in entries for t in (types if isinstance(types, tuple) else (types,))]
    return [(t.__tvm_ffi_type_info__.type_index, run) for t, run in pairs]


def _import_module(module: str) -> Any:
    runtime.ffi()  # imports `tvm_ffi` without torch, so it must come first
    return runtime.import_module(module)


@cache
def _global_function(name: str) -> Any:
    """A function of the global registry, from the runtime or else from the compiler."""
    registry = runtime.load()
    function = registry.get_global_func(FUNCTIONS[name], allow_missing=True)
    if function is None:
        _import_module("tvm")
        function = registry.get_global_func(FUNCTIONS[name], allow_missing=True)
    if function is None:
        raise AttributeError(f"TVM has no global function {FUNCTIONS[name]!r} (meta's name: {name!r})")
    return function


def _run_serially() -> None:
    """Let a forked child run parallel kernels in its one thread: its copy of TVM's thread pool has no threads."""
    if runtime.load.cache_info().currsize:
        _global_function("config_threadpool")(1, 1)  # affinity mode "big cores", one thread


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_run_serially)


@cache
def load() -> None:
    """Import TVM; code that builds or compiles programs calls this first."""
    _import_module("tvm")
    runtime.load()


class Lazy:
    """A module of TVM, or a name in one, that is imported when called.

    Modules of computes refer to functions of TVM at import, which must not load TVM.
    """

    def __init__(self, module: str, path: tuple[str, ...] = ()) -> None:
        self._module = module
        self._path = path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if "tvm" not in sys.modules:
            return Lazy(self._module, (*self._path, name))
        value = getattr(self._resolve(), name)
        setattr(self, name, value)
        return value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._resolve()(*args, **kwargs)

    def __repr__(self) -> str:
        return ".".join((self._module, *self._path))

    def _resolve(self) -> Any:
        value = _import_module(self._module)
        for part in self._path:
            value = getattr(value, part)
        return value


def __getattr__(name: str) -> Any:
    path = NAMES.get(name, ":")
    if ":" not in path and "tvm" not in sys.modules:
        return Lazy(path)
    value = resolve(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *NAMES, *FUNCTIONS})
