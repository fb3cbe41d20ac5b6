"""Calls as dialects are asked about them."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from meta.device import Device
from meta.dtype import is_complex
from meta.ir.expr import OpLike
from meta.ir.type import TensorType, Type, flat_types
from meta.records import record


@record(eq=False)
class CallInfo:
    """A call as a dialect sees it: `args` in schema order, tensors as types, everything else as values."""

    op: OpLike
    args: tuple[Any, ...]
    out: Type
    device: Device
    _facts: dict[str, Any] = field(default_factory=dict[str, Any], init=False, repr=False)
    """What its methods have found out: every candidate and every limit asks for it."""

    def tensors(self) -> tuple[TensorType, ...]:
        """The types of the inputs a kernel is called with."""
        if "tensors" not in self._facts:
            self._facts["tensors"] = tuple(flat_types(self.args))
        return self._facts["tensors"]

    def outputs(self) -> tuple[TensorType, ...]:
        """The types of the results."""
        if "outputs" not in self._facts:
            self._facts["outputs"] = tuple(flat_types((self.out,)))
        return self._facts["outputs"]

    def complex_dtype(self) -> str:
        """The first complex dtype among operands and results, complex64 if there are only complex numbers, "" if there
        is none."""
        if "complex" not in self._facts:
            self._facts["complex"] = self._find_complex_dtype()
        return self._facts["complex"]

    def _find_complex_dtype(self) -> str:
        of_tensors = next((t.dtype for t in (*self.tensors(), *self.outputs()) if is_complex(t.dtype)), "")
        return of_tensors or ("complex64" if any(isinstance(arg, complex) for arg in self.args) else "")

    def bind(self) -> dict[str, Any]:
        """Arguments by name."""
        return dict(zip(self.op.schema.names, self.args, strict=True))
