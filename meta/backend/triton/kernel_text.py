"""The text of elementwise Triton kernels, and the strides that they take.

A kernel is generated for the number of operands and of axes. Axes that all operands run through in one step count as
one: operands of one shape have one axis, whose stride of 1 Triton compiles to wide loads. A broadcast operand has the
stride 0. Sizes and strides are arguments of the kernel, so that it serves every shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from meta.errors import TypeInferenceError


@dataclass(frozen=True, slots=True)
class OperandLayout:
    """The axes of the result, merged where possible, and for each operand its strides along them, in elements."""

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        return prod(self.sizes)


def layout(out: Sequence[int], operands: Sequence[Sequence[int]]) -> OperandLayout:
    """The layout of compact operands of these shapes, broadcast to the shape `out`.

    Raises TypeInferenceError for shapes that do not broadcast."""
    axes = [(size, tuple(_stride(shape, i - len(out)) for shape in operands)) for i, size in enumerate(out)]
    for shape in operands:
        padded = (1,) * (len(out) - len(shape)) + tuple(shape)
        if len(padded) != len(out) or any(a not in (1, b) for a, b in zip(padded, out, strict=True)):
            raise TypeInferenceError("pointwise", f"shape {tuple(shape)} does not broadcast to {tuple(out)}")
    merged: list[tuple[int, tuple[int, ...]]] = []
    for size, strides in axes:
        if size == 1:
            continue
        if merged and all(outer == inner * size for outer, inner in zip(merged[-1][1], strides, strict=True)):
            merged[-1] = (merged[-1][0] * size, strides)
        else:
            merged.append((size, strides))
    merged = merged or [(1, (0,) * len(operands))]
    by_operand = tuple(tuple(strides[k] for _, strides in merged) for k in range(len(operands)))
    return OperandLayout(tuple(size for size, _ in merged), by_operand)


def _stride(shape: Sequence[int], axis: int) -> int:
    """The stride of a compact operand along an axis counted from the last (-1), 0 where it is broadcast."""
    if -axis > len(shape) or shape[axis] == 1:
        return 0
    return prod(shape[axis:][1:])


@dataclass(frozen=True, slots=True)
class Operands:
    """The arguments of an expression.

    arguments: the text of each in the kernel.  casts: what follows the load of each tensor.  numbers: those that the
    kernel takes at run time.  results: how many the expression returns."""

    arguments: tuple[str, ...]
    casts: tuple[str, ...]
    numbers: tuple[float, ...]
    results: int


def source(operands: Operands, rank: int, *, wide: bool) -> str:
    """The text of the kernel for `rank` axes. wide: 64-bit indices."""
    inputs, outputs = range(len(operands.casts)), range(operands.results)
    axes = range(rank)
    parameters = [
        *(f"x{k}" for k in inputs),
        *(f"y{k}" for k in outputs),
        *(f"number{k}" for k in range(len(operands.numbers))),
        "count",
        *(f"size{d}" for d in axes),
        *(f"stride{k}_{d}" for k in inputs for d in axes),
        "BLOCK: tl.constexpr",
    ]
    block = "tl.program_id(0).to(tl.int64)" if wide else "tl.program_id(0)"
    lines = [
        f"def pointwise_kernel({', '.join(parameters)}):",
        f"    index = {block} * BLOCK + tl.arange(0, BLOCK)",
        "    inside = index < count",
        *_positions(rank),
    ]
    for k, cast in enumerate(operands.casts):
        offset = " + ".join(f"i{d} * stride{k}_{d}" for d in axes)
        lines.append(f"    v{k} = tl.load(x{k} + {offset}, mask=inside){cast}")
    results = ", ".join(f"r{k}" for k in outputs)
    lines.append(f"    {results} = expression({', '.join(operands.arguments)})")
    lines += [f"    tl.store(y{k} + index, r{k}, mask=inside)" for k in outputs]
    return "\n".join(lines) + "\n"


def _positions(rank: int) -> list[str]:
    """Statements that take the flat index apart: i0, i1, ... along each axis."""
    lines = ["    rest = index"] if rank > 1 else []
    for d in range(rank - 1, 0, -1):
        lines += [f"    i{d} = rest % size{d}", f"    rest = rest // size{d}"]
    return [*lines, f"    i0 = {'rest' if rank > 1 else 'index'}"]
