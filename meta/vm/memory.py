"""How many bytes a call needs, known before it runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from meta.dtype import itemsize
from meta.op.dialect.tvm import _adapter as tvm


@dataclass(frozen=True, slots=True)
class PlannedBytes:
    """What the memory plan of a program allocates, in bytes.

    intermediates: storage shared by what is computed on the way, with that of called functions.
    outputs: storage of the results.  workspace: the most that one kernel allocates while it runs.
    dynamic: tensors whose size is known only when running; they are not counted."""

    intermediates: int
    outputs: int
    workspace: int
    dynamic: int

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes of one call. state: parameters, buffers and optimizer state that the program reads or writes.
    The other fields are those of PlannedBytes; `total` is everything that lives during the call."""

    state: int
    inputs: int
    constants: int
    outputs: int
    intermediates: int
    workspace: int
    dynamic: int

    @property
    def total(self) -> int:
        return self.state + self.inputs + self.constants + self.outputs + self.intermediates + self.workspace

    def __str__(self) -> str:
        rows = [(name, getattr(self, name)) for name in
                ("state", "inputs", "constants", "outputs", "intermediates", "workspace", "total")]  # fmt: skip
        text = "\n".join(f"{name:<14}{value:>16,} bytes" for name, value in rows)
        return text + (f"\n{self.dynamic} tensors of symbolic size are not counted" if self.dynamic else "")


def planned_bytes(module: Any) -> PlannedBytes:
    """What a planned Relax module allocates."""
    intermediates = outputs = dynamic = workspace = 0
    for function in module.functions.values():
        if isinstance(function, tvm.PrimFunc):
            workspace = max(workspace, _workspace(function))
            continue
        for call in _calls(function):
            name = getattr(call.op, "name", "")
            if name not in ("relax.memory.alloc_storage", "relax.builtin.alloc_tensor"):
                continue
            size = _product(call.args[0])
            if size is None:
                dynamic += 1
            elif name == "relax.memory.alloc_storage":
                intermediates += size
            else:
                outputs += size * itemsize(str(call.args[1].value))
    return PlannedBytes(intermediates, outputs, workspace, dynamic)


def _calls(function: Any) -> list[Any]:
    return [
        b.value
        for block in function.body.blocks
        for b in block.bindings
        if isinstance(b, tvm.VarBinding) and isinstance(b.value, tvm.RelaxCall)
    ]


def _product(shape: Any) -> int | None:
    total = 1
    for d in shape.values:
        if not isinstance(d, (int, tvm.IntImm)):
            return None
        total *= int(d)
    return total


def _workspace(func: Any) -> int:
    """Bytes of the buffers that a kernel allocates itself, where their sizes are known."""
    total = 0

    def visit(block: Any) -> None:
        nonlocal total
        for buffer in block.alloc_buffers:
            size = itemsize(str(buffer.dtype))
            for d in buffer.shape:
                size *= int(d) if isinstance(d, tvm.IntImm) else 0
            total += size

    tvm.structural_walk(func.body, (tvm.SBlock, visit))
    return total
