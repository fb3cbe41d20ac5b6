"""What schedule rules ask about the blocks of a TIR function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from meta.backend.tvm import adapter as tvm

SPATIAL: Final = 0
REDUCE: Final = 2

# Calls that cost about as little as an addition. Everything else is worth computing once only.
_CHEAP_CALLS: Final = frozenset(
    f"tirx.{name}"
    for name in ("if_then_else", "likely", "reinterpret", "fabs", "abs", "bitwise_and", "bitwise_or", "bitwise_xor",
                 "bitwise_not", "shift_left", "shift_right", "floor", "ceil", "trunc", "round", "nearbyint", "sqrt",
                 "isnan", "isfinite", "isinf", "min_value", "max_value", "infinity", "copysign")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Block:
    """A computation block with its loops, outermost first.

    Attributes:
        rv: the schedule's handle.
        node: the `SBlock` itself.
        kinds: for each block variable, "S" spatial, "R" reduction, "O" anything else.
        extents: for each block variable.
    """

    rv: Any
    node: Any
    kinds: str
    extents: tuple[Any, ...]

    @property
    def name(self) -> str:
        return str(self.node.name_hint)

    @property
    def spatial(self) -> bool:
        """Whether nothing is reduced."""
        return "R" not in self.kinds and "O" not in self.kinds

    @property
    def reduction(self) -> bool:
        """Whether it is a reduction with an initial value, over spatial and reduction variables alone."""
        return self.node.init is not None and "R" in self.kinds and "O" not in self.kinds

    @property
    def written(self) -> list[Any]:
        return [region.source for region in self.node.writes]

    @property
    def read(self) -> list[Any]:
        return [region.source for region in self.node.reads]


def blocks_of(sch: Any) -> list[Block]:
    """The blocks under the root, in order of execution."""
    root = sch.get_sblock("root")
    return [block(sch, rv) for rv in sch.get_child_blocks(root)]


def buffers_of(func: Any) -> list[Any]:
    """The buffers of a function: parameters (but for sizes, which are numbers), then what it allocates."""
    allocated: list[Any] = []
    tvm.structural_walk(func.body, (tvm.SBlock, lambda b: allocated.extend(b.alloc_buffers) and None))
    return [*(p for p in func.params if hasattr(p.ty, "shape")), *allocated]


def block(sch: Any, rv: Any) -> Block:
    """The facts about one block."""
    node = sch.get(rv)
    kinds = "".join({SPATIAL: "S", REDUCE: "R"}.get(int(v.iter_type), "O") for v in node.iter_vars)
    return Block(rv, node, kinds, tuple(static(v.dom.extent) for v in node.iter_vars))


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop around a block: its handle, and the positions of the block variables that move with it."""

    rv: Any
    kind: str  # "R" if a reduction variable moves with it, else "S"
    positions: frozenset[int]


def loops_of(sch: Any, b: Block) -> list[Loop]:
    """The loops around a block, outermost first; which variable moves with which is read off the block's bindings."""
    handles = list(sch.get_loops(b.rv))
    if not handles:
        return []
    values: list[Any] = []
    tvm.structural_walk(
        sch.get(handles[-1]), (tvm.SBlockRealize, lambda r: values.extend(r.iter_values) if not values else None)
    )
    loops: list[Loop] = []
    for handle in handles:
        var = sch.get(handle).loop_var
        positions = frozenset(i for i, value in enumerate(values) if uses(value, var))
        loops.append(Loop(handle, "R" if any(b.kinds[i] == "R" for i in positions) else "S", positions))
    return loops


def static(extent: Any) -> Any:
    """An `int` where the extent is known."""
    return int(extent) if isinstance(extent, (int, tvm.IntImm)) else extent


def same_extent(a: Any, b: Any) -> bool:
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    return bool(tvm.structural_equal(a, b))


def volume(extents: tuple[Any, ...]) -> int | None:
    """The product of the extents, or None when one of them is symbolic."""
    total = 1
    for extent in extents:
        if not isinstance(extent, int):
            return None
        total *= extent
    return total


def fused(sch: Any, loops: Sequence[Any]) -> Any:
    """The loops as one."""
    return sch.fuse(*loops) if len(loops) > 1 else loops[0]


_LENGTHS: Final = {"vast": 1 << 14, "long": 1 << 8}
"""What the names of unknown sizes begin with, and the elements that there are then at least."""


def size_name(size: int) -> str:
    """How the name of a size begins that the kernel is not to know, but of about which length it is."""
    return next((name for name, least in _LENGTHS.items() if size >= least), "n")


def at_least(extent: Any) -> int:
    """How many elements an axis has for certain."""
    if isinstance(extent, int):
        return extent
    name = str(getattr(extent, "name", ""))
    return next((least for start, least in _LENGTHS.items() if name.startswith(start)), 0)


def bits_of(buffer: Any) -> int:
    """Bits of one element."""
    return int(tvm.dtype(str(buffer.dtype)).bits)


def expensive(b: Block) -> bool:
    """Whether the block calls a function that costs more than arithmetic."""
    found = False

    def visit(call: Any) -> None:
        nonlocal found
        name = getattr(call.op, "name", None)
        found = found or (name is not None and name not in _CHEAP_CALLS)

    tvm.structural_walk(b.node.body, (tvm.Call, visit))
    return found


def loads_of(b: Block) -> list[Any]:
    """The loads of the block's body, those of its own result (a reduction's accumulator) left out."""
    own = b.written
    loads: list[Any] = []

    def visit(load: Any) -> None:
        if not any(load.source.same_as(w) for w in own):
            loads.append(load)

    tvm.structural_walk(b.node.body, (tvm.TensorLoad, visit))
    return loads


def uses(expr: Any, var: Any) -> bool:
    """Whether `expr` contains the variable."""
    found = False

    def visit(v: Any) -> None:
        nonlocal found
        found = found or v.same_as(var)

    tvm.structural_walk(expr, (tvm.Var, visit))
    return found


def elementwise(b: Block) -> bool:
    """Whether the block is spatial and every access is at the block's own position, so that it may be flattened."""
    if not b.spatial or len(b.node.writes) != 1:
        return False
    variables = [v.var for v in b.node.iter_vars]

    def at_own_position(indices: Any) -> bool:
        return len(indices) == len(variables) and all(i.same_as(v) for i, v in zip(indices, variables, strict=True))

    store = b.node.body
    if not isinstance(store, tvm.BufferStore) or not at_own_position(store.indices):
        return False
    return all(
        len(load.indices) == 0 or (at_own_position(load.indices) and _same_shape(load.source.shape, store.buffer.shape))
        for load in loads_of(b)
    )


def _same_shape(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(same_extent(static(m), static(n)) for m, n in zip(a, b, strict=True))
