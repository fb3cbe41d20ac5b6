"""`NodeView`: what a row reads of the node that is converted or run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from meta.eager.ndarray import NDArray
from meta.frontend.onnx.errors import UndecidedError, UnsupportedError
from meta.frontend.onnx.tensors import check_dtype, dtype_name


@dataclass(frozen=True, slots=True, eq=False)
class NodeView:
    """A node.

    name: in words, for errors: `node 'conv1' (Conv)`.  op_type, domain, overload: of the operator.
    version: of the operator's domain.  inputs: names, "" for those left out.
    outputs: names, "" for those that are left out or that nothing uses."""

    name: str
    op_type: str
    domain: str
    overload: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def constant(self, value: Any, what: str) -> npt.NDArray[Any]:
        """The value of a tensor as a NumPy array. Raises UndecidedError, about `what`, for a symbol."""
        if isinstance(value, np.ndarray):
            return value
        if isinstance(value, NDArray):
            return value.numpy()
        raise UndecidedError(
            "onnx", f"{self.name}: {what} depends on the values of the model's inputs",
            "a value that follows from constants and shapes", remedy="pass it in `constants`, or call `interpret`",
        )  # fmt: skip

    def dtype(self, code: int, what: str = "the attribute") -> str:
        """The dtype of meta with a code of `TensorProto.DataType`. Raises UnsupportedError for dtypes meta lacks."""
        return check_dtype(dtype_name(code, f"{self.name}: {what}"), f"{self.name}: {what}")

    def refuse(self, problem: str, expected: str = "") -> NoReturn:
        """Raise UnsupportedError about the node."""
        raise UnsupportedError("onnx", f"{self.name}: {problem}", expected)


def describe(node: Any) -> str:
    """A node of `onnx_ir` in words: `node 'conv1' (Conv)`, or by its first output where it has no name."""
    operator = f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
    if node.name:
        return f"node '{node.name[:200]}' ({operator})"
    output = next((v.name for v in node.outputs if v.name), "")
    return f"the {operator} that computes '{output[:200]}'" if output else f"a node {operator}"
