"""Where the tensors of one function are: in its part of the arena, the frame, or in slots."""

from __future__ import annotations

from meta.deploy.sizes import CSizes
from meta.deploy.tables import SlotPlace, TensorTables, tensor_bytes, unsupported
from meta.vm.plan.frames import aligned
from meta.vm.plan.kernels import PARAMETER, PLANNED, Memory, Operand, Shape, Tensor


def known_shape(tensor: Tensor) -> Shape:
    if tensor.shape is None:
        raise unsupported(f"only running the program shows the sizes of {tensor.name}", "sizes that follow from inputs")
    return tensor.shape


class ArenaFrame:
    """The memory of a function.

    bytes: of the arena.  storages: where the storages of the plan start.  places: of other memory.
    lines: statements in C."""

    def __init__(self, tables: TensorTables, name: str, sizes: CSizes) -> None:
        self.tables = tables
        self.name = name
        self.sizes = sizes
        self.bytes = 0
        self.storages: list[int] = []
        self.places: dict[Memory, SlotPlace] = {}
        self.lines: list[str] = []

    def place(self, tensor: Tensor) -> SlotPlace:
        memory = tensor.memory
        if memory.kind == PLANNED:
            return SlotPlace(0, self.storages[memory.storage] + memory.offset, self.name)
        if memory not in self.places:
            assert memory.kind != PARAMETER
            self.places[memory] = self.reserve(known_shape(tensor), tensor.dtype)
        return self.places[memory]

    def reserve(self, shape: Shape, dtype: str) -> SlotPlace:
        """Memory in the frame beside the plan's; a slot for a tensor of symbolic size."""
        size = tensor_bytes(shape, dtype)
        if size is None:
            return SlotPlace(self.tables.slot())
        start = aligned(self.bytes)
        self.bytes = start + size
        return SlotPlace(0, start, self.name)

    def view(self, operand: Operand, place: SlotPlace | None = None) -> int:
        """The number of a view. place: by default the operand's."""
        shape = operand.shape if operand.view is not None else known_shape(operand.tensor)
        assert shape is not None
        place = place or self.place(operand.tensor)
        return self.tables.view(place, self.sizes.shape(shape), len(shape), operand.tensor.dtype)

    def shape(self, operand: Operand) -> Shape:
        return operand.view if operand.view is not None else known_shape(operand.tensor)
