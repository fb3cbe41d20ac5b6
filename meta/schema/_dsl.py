"""`Schema` and `Arg`, which declare the arguments of operators.

softmax = Schema("softmax", Arg("x", Tensor, doc="Input of any shape."), Arg("axis", Int, -1, doc="..."))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from keyword import iskeyword
from typing import Any, Final

from meta.errors import ArgumentError, did_you_mean, value_text
from meta.records import record
from meta.schema._types import ArgType, Reject


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
OTHER_NAMES: Final[Mapping[str, str]] = {
    "a": "x", "dim": "axis", "dim0": "axis1", "dim1": "axis2", "dims": "axes", "input": "x", "keepdim": "keepdims",
    "other": "x2", "tensors": "xs", "unbiased": "correction",
}  # fmt: skip
"""Names that torch or NumPy give to arguments, and those of the same arguments in schemas, for error texts."""


@record
class Arg:
    """One argument: its name, type, default (REQUIRED without one) and one sentence of documentation."""

    name: str
    type: ArgType
    default: Any = REQUIRED
    doc: str = ""

    @property
    def is_tensor(self) -> bool:
        """Whether the argument takes tensors."""
        return self.type.role != "attr"

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    def normalize(self, op: str, value: Any) -> Any:
        """The normal form of `value`. Raises an ArgumentError that names `op` and this argument."""
        try:
            return self.type.normalize(value)
        except Reject as hint:
            problem = f"argument '{self.name}' is {type(value).__name__} {value_text(value)}"
            raise ArgumentError(op, problem, self.type.allowed, str(hint)) from None


class Schema:
    """The arguments of one or more operators, in call order."""

    __slots__ = ("args", "index", "name", "names", "tensor_positions")

    def __init__(self, name: str, *args: Arg) -> None:
        self.name = name
        self.args = args
        self.names: tuple[str, ...] = tuple(arg.name for arg in args)
        self.index: Mapping[str, int] = {arg.name: i for i, arg in enumerate(args)}
        self.tensor_positions: tuple[int, ...] = tuple(i for i, arg in enumerate(args) if arg.is_tensor)
        _check_schema(self)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(_arg_text, self.args))})"

    def bind(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Positional and keyword arguments of a call of `op` -> normalised values in schema order.

        Raises ArgumentError for surplus, unknown, duplicate or missing arguments and for values of the wrong type."""
        if len(args) > len(self.args):
            raise ArgumentError(op, f"{len(args)} arguments given", f"at most {len(self.args)}: {self!r}")
        values: list[Any] = list(args) + [REQUIRED] * (len(self.args) - len(args))
        for name, value in kwargs.items():
            position = self.index.get(name)
            if position is None:
                other = OTHER_NAMES.get(name)
                hint = f"write {other}=" if other in self.index else did_you_mean(name, self.names)
                raise ArgumentError(op, f"unknown argument '{name}'", f"{self!r}", hint)
            if values[position] is not REQUIRED:
                raise ArgumentError(op, f"argument '{name}' given twice", f"{self!r}")
            values[position] = value
        return tuple(self._value(op, arg, value) for arg, value in zip(self.args, values, strict=True))

    def _value(self, op: str, arg: Arg, value: Any) -> Any:
        if value is not REQUIRED:
            return arg.normalize(op, value)
        if arg.required:
            raise ArgumentError(op, f"argument '{arg.name}' is missing", f"{self!r}")
        return arg.normalize(op, arg.default)


def _arg_text(arg: Arg) -> str:
    return f"{arg.name}: {arg.type}" + ("" if arg.required else f" = {arg.default!r}")


def _check_schema(schema: Schema) -> None:
    """Check names, order and defaults of the arguments when the schema is built; raises ValueError."""
    seen_default = False
    for arg in schema.args:
        if not arg.name.isidentifier() or iskeyword(arg.name):
            raise ValueError(f"schema {schema.name}: an argument cannot be called '{arg.name}'")
        if arg.required and seen_default:
            raise ValueError(f"schema {schema.name}: required '{arg.name}' follows an argument with a default")
        seen_default = seen_default or not arg.required
        if not arg.required:
            arg.normalize(schema.name, arg.default)
    if len(schema.index) != len(schema.args):
        raise ValueError(f"schema {schema.name}: an argument name occurs twice")
