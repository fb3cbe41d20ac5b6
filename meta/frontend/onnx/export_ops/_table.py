"""The table of ONNX nodes by the names of meta's operators. The modules of this folder fill it.

    rows({"softmax": lambda call, x, axis: call.node("Softmax", x, axis=axis)})

A row receives the arguments of a call in the order of the schema, with the names of values for tensors, adds nodes and
returns the name of the result, a tuple of names for several; or None where ONNX cannot express these arguments.
Calls with complex operands or results have rows of their own, `complex_row`. ONNX has no operators on complex numbers:
their values are the real and imaginary parts along a last axis, as ONNX's DFT takes and returns them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meta import dtype as dtypes
from meta.dim import Dim, SymDim
from meta.frontend.onnx.export_graph import ExportGraph
from meta.frontend.onnx.export_types import element_type
from meta.frontend.rows import RowTable
from meta.ir.expr import Call, arg_types
from meta.ir.type import TensorType, flat_types


@dataclass(frozen=True, slots=True)
class OnnxSite:
    """The call that a row converts. used: the positions of the results that the program reads."""

    graph: ExportGraph
    call: Call
    used: frozenset[int]

    @property
    def opset(self) -> int:
        return self.graph.opset

    @property
    def args(self) -> tuple[Any, ...]:
        """The types of the arguments, values for others than tensors."""
        return arg_types(self.call.args)

    @property
    def types(self) -> list[TensorType]:
        """The types of the tensor operands, lists flattened, absent ones left out."""
        return flat_types(self.args)

    @property
    def results(self) -> list[TensorType]:
        return flat_types((self.call.type,))

    @property
    def result(self) -> TensorType:
        """The type of the (first) result."""
        return self.results[0]

    @property
    def dtype(self) -> str:
        return self.result.dtype

    @property
    def is_float(self) -> bool:
        """Whether the first operand is floating."""
        return dtypes.is_float(self.types[0].dtype)

    def node(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        return self.graph.node(kind, *inputs, outputs=outputs, **attributes)

    def integers(self, values: Sequence[Dim]) -> str:
        return self.graph.integers(values)

    def number(self, value: Any, dtype: str = "") -> str:
        """A number without axes, of the dtype of the result by default; a symbolic one is computed."""
        dtype = dtype or self.dtype
        if isinstance(value, SymDim):
            return self.cast(self.node("Squeeze", self.graph.size(value)), "int64", dtype)
        return self.graph.constant(value, dtype)

    def range(self, start: Dim, stop: Dim, step: int = 1) -> str:
        """The ints from `start` to `stop`, which is left out."""
        return self.node("Range", *(self.number(value, "int64") for value in (start, stop, step)))

    def cast(self, x: str, source: str, dtype: str) -> str:
        return x if source == dtype else self.node("Cast", x, to=element_type(dtype))

    def operand(self, position: int, value: Any, dtype: str) -> str:
        """An argument that is a tensor or a number, in a dtype."""
        kind = self.args[position]
        return self.cast(value, kind.dtype, dtype) if isinstance(kind, TensorType) else self.number(value, dtype)


table = RowTable("meta.frontend.onnx.export_ops")
complex_table = RowTable("meta.frontend.onnx.export_ops")
row, rows = table.row, table.enter
complex_row, complex_rows = complex_table.row, complex_table.enter
