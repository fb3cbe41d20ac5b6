"""Where the elements of a value of a program are, among the ranks of a group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from meta.dim import Dim
from meta.ir.type import TensorType
from meta.op.axes import Reduction
from meta.schema._dsl import TensorLike


@dataclass(frozen=True, slots=True)
class Replicated:
    """Every rank has the value."""


@dataclass(frozen=True, slots=True)
class Local:
    """Every rank has a tensor of the value's type, each another one: the program says what it is."""


@dataclass(frozen=True, slots=True)
class Sharded:
    """Every rank has a part along an axis. The axis consists of `blocks` blocks one after the other, and a rank has a
    part of each block: with two ranks and blocks of 4, rank 0 has 0, 1, 4, 5 and rank 1 has 2, 3, 6, 7."""

    axis: int
    blocks: int = 1

    def __str__(self) -> str:
        return f"axis {self.axis}" + (f" in {self.blocks} blocks" if self.blocks > 1 else "")


@dataclass(frozen=True, slots=True)
class Partial:
    """Every rank has a tensor of the value's type; the value is their reduction."""

    reduction: Reduction


Placement: TypeAlias = "Replicated | Local | Sharded | Partial"
REPLICATED, LOCAL = Replicated(), Local()


def divides(size: Dim, placement: Sharded, ranks: int) -> bool:
    """Whether an axis of this size has equal parts."""
    return isinstance(size, int) and size > 0 and size % (placement.blocks * ranks) == 0


def part_type(kind: TensorType, placement: Sharded, ranks: int) -> TensorType:
    """The type of a rank's part of a value."""
    return kind.with_shape(tuple(size // ranks if i == placement.axis else size for i, size in enumerate(kind.shape)))


class Distributed(TensorLike):
    """A value of the program.

    type: its type in the program.  placement: where it was computed.  atoms: what holds it, by placement.
    makers: how else it may be computed in a placement, in place of a collective."""

    __slots__ = ("atoms", "makers", "placement", "type")

    def __init__(self, kind: TensorType, placement: Placement, atom: Any) -> None:
        self.type = kind
        self.placement = placement
        self.atoms: dict[Placement, Any] = {placement: atom}
        self.makers: dict[Placement, Callable[[], Any]] = {}


Value: TypeAlias = "Distributed | tuple[Value, ...]"
