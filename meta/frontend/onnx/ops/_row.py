"""The table of ONNX's operators: functions of a node's inputs and attributes. The modules of this folder fill it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NoReturn, Protocol

import numpy as np

from meta.dim import SymDim
from meta.errors import NotSupportedError, TypeInferenceError
from meta.frontend.onnx.ops._values import is_host, tensor, value_of
from meta.frontend.rows import RowTable

Fold = Callable[..., Any]

MAX_UNROLLED: Final = 1 << 10
"""Steps of a loop that conversion writes out, because its values change their types or are sequences; and the tensors
of a sequence that a tensor is split into."""


class Node(Protocol):
    """The node that is converted, as rows read it."""

    @property
    def op_type(self) -> str: ...

    @property
    def version(self) -> int:
        """The opset version of the operator's domain that the model imports."""
        ...

    @property
    def outputs(self) -> Sequence[str]:
        """Names of the outputs; "" for those that are left out."""
        ...

    def constant(self, value: Any, what: str) -> np.ndarray[Any, Any]:
        """The value of input `what`, a tensor, if it is known at conversion. Raises NotSupportedError otherwise."""
        ...


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """How one operator is converted, from one opset on.

    name: with its domain (see `qualified`).
    function: (node, *inputs, **attributes) -> a value, or a tuple of one value an output; absent optional inputs are
        None. Its keyword-only parameters are the attributes, without defaults if they are required. NotImplemented
        leaves these inputs to the body that ONNX gives for the operator.
    since: the first opset.  constants: names of inputs whose values must be known at conversion: NumPy arrays.
    raw: whether the inputs are passed as they come, tensors or NumPy arrays; otherwise NumPy arrays become tensors.
    fold: the operator in NumPy, for inputs that are all known: (*inputs, **attributes). NotImplemented leaves these
        inputs to `function`.
    folds: whether a node of known inputs is computed at conversion; False for random operators.
    """

    name: str
    since: int
    function: Callable[..., Any]
    constants: Sequence[str] = ()
    raw: bool = False
    fold: Fold | None = None
    folds: bool = True

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that the row reads."""
        return frozenset(p.name for p in _parameters(self.function).values() if p.kind is p.KEYWORD_ONLY)

    def __call__(self, node: Node, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        """The outputs: a value, or a tuple of them.

        Raises NotSupportedError for unknown attributes, TypeInferenceError for missing ones and missing inputs."""
        parameters = _parameters(self.function)
        values = [p for p in parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)][1:]
        self._check(node, inputs, values, attributes)
        variadic = bool(values) and values[-1].kind is inspect.Parameter.VAR_POSITIONAL
        names = [p.name for p in (*values, *values[-1:] * len(inputs) * variadic)]
        if self.fold is not None and inputs and all(value is None or is_host(value) for value in inputs):
            with np.errstate(all="ignore"):  # infinities, NaN and remainders by 0 are ordinary results
                result = self.fold(*inputs, **attributes)
            if result is not NotImplemented:  # NumPy takes a 0-d array of a size apart
                return np.asarray(result, object) if isinstance(result, SymDim) else result
        operands = [self._operand(node, name, value) for name, value in zip(names, inputs, strict=False)]
        return self.function(node, *operands, **attributes)

    def _operand(self, node: Node, name: str, value: Any) -> Any:
        if value is None or isinstance(value, (list, tuple)):
            return value
        if name in self.constants:
            return value_of(node, value, name)
        return value if self.raw else tensor(value)

    def _check(
        self, node: Node, inputs: Sequence[Any], values: list[inspect.Parameter], attributes: dict[str, Any]
    ) -> None:
        parameters = _parameters(self.function)
        names = {p.name: p for p in parameters.values() if p.kind is p.KEYWORD_ONLY}
        unknown = [name for name in attributes if name not in names]
        if unknown:
            raise NotSupportedError(node.op_type, f"attribute {unknown[0]} is set", f"{', '.join(names) or 'none'}")
        for name, parameter in names.items():
            if parameter.default is parameter.empty and name not in attributes:
                raise TypeInferenceError(node.op_type, f"attribute {name} is missing", "a value")
        fixed = [p for p in values if p.kind is p.POSITIONAL_OR_KEYWORD]
        if len(inputs) > len(fixed) and len(fixed) == len(values):
            raise TypeInferenceError(node.op_type, f"{len(inputs)} inputs", f"at most {len(fixed)}")
        for i, parameter in enumerate(fixed):
            if parameter.default is parameter.empty and (i >= len(inputs) or inputs[i] is None):
                raise TypeInferenceError(node.op_type, f"input {parameter.name} is missing", "a tensor")


@cache
def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


STANDARD = frozenset({"", "ai.onnx"})
"""Names of the domain of the standard operators."""


def domain_of(name: str) -> str:
    """A domain as the table has it: "" for the standard operators."""
    return "" if name in STANDARD else name


def qualified(name: str, domain: str) -> str:
    """An operator as the table has it: `Relu`, `ai.onnx.ml::Scaler`."""
    return f"{domain}::{name}" if domain else name


table = RowTable("meta.frontend.onnx.ops", OperatorRow)
"""Rows by qualified name; their versions are opsets of the operator's domain."""
row, rows = table.row, table.enter


def refuse(node: Node, problem: str, expected: str = "", remedy: str = "") -> NoReturn:
    """Raise NotSupportedError about the node."""
    raise NotSupportedError(node.op_type, problem, expected, remedy)
