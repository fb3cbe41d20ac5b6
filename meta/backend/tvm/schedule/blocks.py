"""Queries on the blocks of a TIR function, shared by the CPU and the GPU rules.

A TIR function is a sequence of blocks; each block computes one buffer in a loop nest. A rule reads from here which axes
of a block are spatial and which are reduced, which loop binds which axis, and how each operand is indexed; it then
calls primitives of TVM's `Schedule`. Nothing here changes the program, but for `fuse_loops`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.spec import LEAST_SIZES
from meta.backend.tvm.te.philox import PHILOX
from meta.backend.tvm.workarounds.exact import EXACT, LITERAL
from meta.records import record

REDUCE: Final = 2

# Calls that take a few instructions. Every other call is computed once instead of once per consumer.
_CHEAP_CALLS: Final = frozenset((LITERAL, *(
    f"tirx.{name}"
    for name in ("if_then_else", "likely", "reinterpret", "fabs", "abs", "bitwise_and", "bitwise_or", "bitwise_xor",
                 "bitwise_not", "shift_left", "shift_right", "floor", "ceil", "trunc", "round", "nearbyint", "sqrt",
                 "isnan", "isfinite", "isinf", "min_value", "max_value", "infinity", "copysign")
)))  # fmt: skip


@record
class ComputeBlock:
    """A computation block.

    Attributes:
        rv: the schedule's handle (random variable) of the block, None without one.
        node: the `SBlock`.
        kinds: one letter per block axis: "S" spatial, "R" reduction, "O" any other kind.
        extents: the extent of each block axis, an int if it is static.
    """

    rv: Any
    node: Any
    kinds: str
    extents: tuple[Any, ...]

    @property
    def name(self) -> str:
        return str(self.node.name_hint)

    @property
    def is_spatial(self) -> bool:
        """Whether all axes are spatial."""
        return "R" not in self.kinds and "O" not in self.kinds

    @property
    def is_reduction(self) -> bool:
        """Whether the block has an initial value and reduces over at least one axis."""
        return self.node.init is not None and "R" in self.kinds and "O" not in self.kinds

    @property
    def written_buffers(self) -> list[Any]:
        return [region.source for region in self.node.writes]

    @property
    def read_buffers(self) -> list[Any]:
        return [region.source for region in self.node.reads]

    @property
    def element_bits(self) -> int:
        """Bits of the widest element that the block reads or writes."""
        return max(map(element_bits, (*self.written_buffers, *self.read_buffers)))

    @property
    def index_dtype(self) -> str:
        """The dtype of the block's indices."""
        return str(self.node.iter_vars[-1].var.ty.dtype)

    def extents_of(self, kind: str) -> tuple[Any, ...]:
        """The extents of the axes of one kind, "S" or "R"."""
        return tuple(e for e, k in zip(self.extents, self.kinds, strict=True) if k == kind)


@record
class Loop:
    """A loop around a block.

    Attributes:
        rv: the schedule's handle of the loop.
        kind: "R" if a reduction axis of the block depends on the loop, else "S".
        axes: positions of the block axes that depend on the loop.
    """

    rv: Any
    kind: str
    axes: frozenset[int]


def list_blocks(sch: tvm.Schedule) -> list[ComputeBlock]:
    """The blocks under the root, in order of execution."""
    root = sch.get_sblock("root")
    return [get_block(sch, rv) for rv in sch.get_child_blocks(root)]


def read_blocks(func: tvm.PrimFunc) -> list[ComputeBlock]:
    """The blocks under the root of a function, in order of execution, without handles: for rules that only look."""
    nodes: list[Any] = []

    def collect(node: tvm.Object) -> Any:
        nodes.append(node)
        return tvm.ffi.WalkResult.SKIP  # blocks inside of blocks

    tvm.structural_walk(func.body.block.body, (tvm.SBlock, collect), order="pre")
    return [describe(None, node) for node in nodes]


def get_block(sch: tvm.Schedule, rv: Any) -> ComputeBlock:
    """The block of a handle, as it is now: earlier primitives may have changed it."""
    return describe(rv, sch.get(rv))


def describe(rv: Any, node: tvm.Object) -> ComputeBlock:
    """The block of a node. rv: its handle, None without one."""
    spatial = 0
    kinds = "".join({spatial: "S", REDUCE: "R"}.get(int(v.iter_type), "O") for v in node.iter_vars)
    return ComputeBlock(rv, node, kinds, tuple(as_int(v.dom.extent) for v in node.iter_vars))


def list_loops(sch: tvm.Schedule, block: ComputeBlock) -> list[Loop]:
    """The loops around a block, outermost first."""
    handles = list(sch.get_loops(block.rv))
    if not handles:
        return []
    bindings: list[Any] = []
    tvm.structural_walk(
        sch.get(handles[-1]), (tvm.SBlockRealize, lambda r: bindings.extend(r.iter_values) if not bindings else None)
    )
    loops: list[Loop] = []
    for handle in handles:
        var = sch.get(handle).loop_var
        axes = frozenset(i for i, binding in enumerate(bindings) if uses_variable(binding, var))
        loops.append(Loop(handle, "R" if any(block.kinds[i] == "R" for i in axes) else "S", axes))
    return loops


def partition_loops(loops: Sequence[Loop]) -> tuple[list[Any], list[Any]]:
    """The handles of the spatial loops and of the reduction loops."""
    return [loop.rv for loop in loops if loop.kind == "S"], [loop.rv for loop in loops if loop.kind == "R"]


def list_buffers(func: tvm.PrimFunc) -> list[Any]:
    """The buffers of a function: its tensor parameters (sizes are parameters too), then those that it allocates."""
    allocated: list[Any] = []
    tvm.structural_walk(func.body, (tvm.SBlock, lambda b: allocated.extend(b.alloc_buffers) and None))
    return [*(p for p in func.params if hasattr(p.ty, "shape")), *allocated]


def list_loads(block: ComputeBlock) -> list[Any]:
    """The loads in the block's body, except loads of its result (a reduction's accumulator)."""
    results = block.written_buffers
    loads: list[Any] = []

    def visit(load: tvm.TensorLoad) -> None:
        if not any(load.source.same_as(result) for result in results):
            loads.append(load)

    tvm.structural_walk(block.node.body, (tvm.TensorLoad, visit))
    return loads


def list_readers(sch: tvm.Schedule, producer: ComputeBlock) -> list[ComputeBlock]:
    """The blocks that load what a block writes. TVM does not find those with loops of their own, whose regions are
    unknown; it finds others faster."""
    known = [get_block(sch, rv) for rv in sch.get_consumers(producer.rv)]
    return known or [
        block for block in list_blocks(sch) if block.node is not producer.node
        and any(load.source.same_as(w) for load in list_loads(block) for w in producer.written_buffers)
    ]  # fmt: skip


def fuse_loops(sch: tvm.Schedule, loops: Sequence[Any]) -> Any:
    """Fuse adjacent loops; returns the fused loop."""
    return sch.fuse(*loops) if len(loops) > 1 else loops[0]


# Extents.


def as_int(extent: tvm.Expr | int) -> Any:
    """A static extent as an `int`; a symbolic one unchanged."""
    return int(extent) if isinstance(extent, (int, tvm.IntImm)) else extent


def is_one(extent: tvm.Expr | int) -> bool:
    return isinstance(extent, tvm.IntImm) and int(extent) == 1


def equal_extents(a: Any, b: Any) -> bool:
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    return bool(tvm.structural_equal(a, b))


def computes_of_positions(block: ComputeBlock) -> bool:
    """Whether values depend on positions, and not only on the elements there."""
    without_loads = tvm.structural_map(
        block.node.body.value, (tvm.TensorLoad, lambda load: tvm.tirx.const(0, str(load.source.dtype)))
    )
    return any(uses_variable(without_loads, v.var) for v in block.node.iter_vars if not is_one(v.dom.extent))


def volume(extents: Sequence[Any]) -> int | None:
    """The product of the extents, or None if one of them is symbolic."""
    total = 1
    for extent in extents:
        if not isinstance(extent, int):
            return None
        total *= extent
    return total


def lower_bound(extent: tvm.Expr | int) -> int:
    """A static extent, or the lower bound that a symbolic extent's name promises, 0 without one."""
    if isinstance(extent, int):
        return extent
    name = str(getattr(extent, "name", ""))
    return next((least for prefix, least in LEAST_SIZES.items() if name.startswith(prefix)), 0)


# Bodies.


def element_bits(buffer: tvm.Buffer) -> int:
    """Bits of one element."""
    return int(tvm.dtype(str(buffer.dtype)).bits)


def is_expensive(block: ComputeBlock) -> bool:
    """Whether the block calls a function that costs more than arithmetic."""
    return calls_expensive(block.node.body)


def calls_expensive(node: tvm.Object) -> bool:
    """Whether a statement or an expression calls a function that costs more than arithmetic."""
    return any(name not in _CHEAP_CALLS and not name.startswith((EXACT, PHILOX)) for name in called(node))


def has_random_bits(block: ComputeBlock) -> bool:
    """Whether the block computes random bits."""
    return any(name.startswith(PHILOX) for name in called(block.node.body))


def called(node: tvm.Object) -> set[str]:
    """The names of the operators that a statement or an expression calls."""
    names: set[str] = set()
    tvm.structural_walk(node, (tvm.Call, lambda call: names.add(call.op.name) if hasattr(call.op, "name") else None))
    return names


def uses_variable(expr: tvm.Expr, var: tvm.Var) -> bool:
    """Whether `expr` contains the variable."""
    used = False

    def visit(v: Any) -> None:
        nonlocal used
        used = used or v.same_as(var)

    tvm.structural_walk(expr, (tvm.Var, visit))
    return used


def is_elementwise(block: ComputeBlock, operands: Sequence[Any] | None = None) -> bool:
    """Whether the block reads each operand, of the result's shape or 0-d, at the position that it writes.

    The loops of such a block can be fused into one over flat memory. operands: the buffers that this is asked of, if
    not all."""
    if not block.is_spatial or len(block.node.writes) != 1:
        return False
    axes = block.node.iter_vars

    def is_own_position(indices: Any) -> bool:
        return len(indices) == len(axes) and all(map(is_own_index, indices, axes))

    def is_own_index(index: Any, axis: Any) -> bool:  # TVM writes 0 for the index along an axis of extent 1
        return index.same_as(axis.var) or (is_one(axis.dom.extent) and isinstance(index, tvm.IntImm))

    store = block.node.body
    if not isinstance(store, tvm.BufferStore) or not is_own_position(store.indices):
        return False
    loads = [load for load in list_loads(block) if operands is None or any(map(load.source.same_as, operands))]
    return all(
        len(load.indices) == 0 or (is_own_position(load.indices) and _same_shape(load.source.shape, store.buffer.shape))
        for load in loads
    )


def _same_shape(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(equal_extents(as_int(m), as_int(n)) for m, n in zip(a, b, strict=True))
