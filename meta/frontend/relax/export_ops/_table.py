"""The table of Relax operators by the names of meta's. The modules of this folder fill it.

    @row("softmax")
    def softmax(call: RelaxSite, x: Any, axis: int) -> Any:
        return call.op.nn.softmax(x, axis) if call.is_wide else None

A row receives the arguments of a call in the order of the schema, with Relax expressions for tensors, and returns
the Relax expression that computes the same, or None where Relax has none for these arguments: then the program calls
meta's own kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meta import dtype as dtypes
from meta.backend.tvm import adapter as tvm
from meta.dim import Dim
from meta.frontend.rows import RowTable
from meta.ir.expr import Call, arg_types
from meta.ir.type import TensorType, flat_types
from meta.vm.lower.translate import RelaxTypes


@dataclass(frozen=True, slots=True)
class RelaxSite:
    """The call that a row converts, and the sizes of the function around it."""

    call: Call
    sizes: RelaxTypes

    @property
    def op(self) -> Any:
        """TVM's module of Relax operators."""
        return tvm.relax.op

    @property
    def types(self) -> list[TensorType]:
        """The types of the tensor operands, lists flattened, absent ones left out."""
        return flat_types(arg_types(self.call.args))

    @property
    def result(self) -> TensorType:
        """The type of the (first) result."""
        return flat_types((self.call.type,))[0]

    @property
    def dtype(self) -> str:
        return self.result.dtype

    @property
    def is_float(self) -> bool:
        """Whether all tensors have one floating dtype."""
        return dtypes.is_float(self.dtype) and self.is_uniform

    @property
    def is_uniform(self) -> bool:
        """Whether operands and result have one dtype."""
        return all(t.dtype == self.dtype for t in self.types)

    @property
    def is_wide(self) -> bool:
        """Whether all tensors are float32 or float64, in which Relax accumulates with the precision of meta."""
        return self.dtype in ("float32", "float64") and self.is_uniform

    def shape(self, dims: tuple[Dim, ...]) -> Any:
        return tvm.ShapeExpr(self.sizes.shape(dims))

    def number(self, value: Any, dtype: str) -> Any:
        """An operand that may be a Python number, as a constant without axes."""
        return tvm.relax_const(value, dtype) if isinstance(value, (bool, int, float)) else value


table = RowTable("meta.frontend.relax.export_ops")
row, rows = table.row, table.enter
