"""`OpCall`: one call of a Relay operator as converters see it. Every attribute is read or refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from meta.errors import NotSupportedError, TypeInferenceError
from meta.frontend.relay import ast
from meta.frontend.relay.folding import fold
from meta.frontend.relay.values import describe, number
from meta.ir.builder import Builder
from meta.ir.expr import Constant
from meta.ir.type import tensor_type
from meta.tracing.symbol import Symbol

_INERT = {
    "auto_scheduler_rewritten_layout": "",
    "meta_schedule_original_shape": (),
    "out_layout": "",
    "rate": None,
}
"""Attributes that say nothing about the result, with the value that says nothing: a layout chosen by a tuner, what a
result is laid out like when it is not the input, and the rate of a dropout that is not active."""


_MOST_ELEMENTS = 1 << 22
"""Elements of a table of positions or weights that a converter makes."""


class OpCall:
    """A call being converted.

    name: Relay's name of the operator.  args: values in order: Symbols, and tuples of them.  place: where it stands.
    shapes: the sizes that tensors of the program hold, for those that are shapes with symbolic sizes.
    """

    __slots__ = ("_read", "args", "attrs", "builder", "name", "place", "shapes")

    def __init__(
        self,
        name: str,
        args: tuple[Any, ...],
        attrs: ast.Attributes,
        place: ast.Place,
        builder: Builder,
        shapes: dict[Any, tuple[Any, ...]] | None = None,
    ) -> None:
        self.name = name
        self.args = args
        self.attrs: Mapping[str, Any] = attrs
        self.place = place
        self.builder = builder
        self.shapes = {} if shapes is None else shapes
        self._read: set[str] = set()

    # --- arguments ---------------------------------------------------------------------------------------------------

    def tensors(self, least: int, most: int | None = None) -> tuple[Any, ...]:
        """The arguments, of which there are `least` to `most` and all are tensors."""
        if not least <= len(self.args) <= (least if most is None else most):
            raise TypeInferenceError(self.name, f"{len(self.args)} arguments", str(least))
        for arg in self.args:
            if not isinstance(arg, Symbol):
                raise TypeInferenceError(self.name, f"an argument is {describe(arg)}", "a tensor")
        return self.args

    def tuple(self, index: int = 0) -> tuple[Any, ...]:
        """Argument `index`, a tuple of tensors."""
        fields = self.args[index] if index < len(self.args) else None
        if not isinstance(fields, tuple) or not all(isinstance(f, Symbol) for f in fields):  # pyright: ignore[reportUnknownVariableType]
            raise TypeInferenceError(self.name, f"argument {index} is not a tuple of tensors")
        return fields  # pyright: ignore[reportUnknownVariableType]

    def constant(self, value: Any, what: str) -> np.ndarray[Any, Any]:
        """The value of a tensor that has to be known now. Raises NotSupportedError when it is not."""
        found = fold(value, self.builder) if isinstance(value, Symbol) else None
        if found is None:
            self.refuse(f"{what} is computed by the program", "a constant, or what follows from constants and shapes")
        return found

    def ints(self, value: Any, what: str) -> tuple[Any, ...]:
        """The ints in a constant tensor of at most one axis; of one that is a shape, its sizes."""
        if isinstance(value, Symbol) and value.atom in self.shapes:
            return self.shapes[value.atom]
        return tuple(int(v) for v in self.constant(value, what).ravel().tolist())

    def number(self, value: Any, what: str) -> Any:
        """The number in a constant tensor of one element."""
        found = self.constant(value, what)
        if found.size != 1:
            self.refuse(f"{what} has shape {found.shape}", "one number")
        return found.item()

    def maybe_number(self, value: Symbol) -> Any:
        """The number in a tensor of one element, None when only the running program knows it."""
        if value.size != 1:
            self.refuse(f"a value of shape {value.shape}", "one number")
        found = fold(value, self.builder)
        return None if found is None else found.item()

    # --- attributes --------------------------------------------------------------------------------------------------

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute; `default` is Relay's own, which texts leave out."""
        self._read.add(name)
        return self.attrs.get(name, default)

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.get(name, default))

    def int(self, name: str, default: int = 0) -> int:
        value = self.get(name, default)
        if isinstance(value, (float, str, tuple)) or value is None:
            self.refuse(f"{name} is {value!r}", "an int")
        return int(value)

    def float(self, name: str, default: float = 0.0) -> float:
        value = self.get(name, default)
        if isinstance(value, (str, tuple)) or value is None:
            self.refuse(f"{name} is {value!r}", "a number")
        # A default that went through 32 bits and back is still the default.
        return default if math.isclose(value, default, rel_tol=2e-7) else float(value)

    def text(self, name: str, default: str = "") -> str:
        """A string; "" when it is not given."""
        return str(self.get(name, default) or "")

    def axes(self, name: str = "axis") -> tuple[int, ...] | None:
        """One int, several, or None when not given."""
        value = self.get(name)
        if value is None:
            return None
        found: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)  # pyright: ignore[reportUnknownVariableType]
        if not all(isinstance(v, int) for v in found):
            self.refuse(f"{name} is {value!r}", "ints")
        return tuple(map(int, found))

    def sizes(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Several ints, given once or one each. Sizes that are not known (`?`) are refused."""
        found = self.axes(name)
        if found is None or (found == () and default):
            if default is None:
                self.refuse(f"{name} is not given", "ints")
            return default
        return found

    def floats(self, name: str, default: tuple[float, ...]) -> tuple[float, ...]:
        """Several numbers."""
        value = self.get(name, default)
        if not isinstance(value, tuple) or not all(isinstance(v, (int, float)) for v in value):  # pyright: ignore[reportUnknownVariableType]
            self.refuse(f"{name} is {value!r}", "numbers")
        return tuple(map(float, value)) or default  # pyright: ignore[reportUnknownArgumentType]

    def only(self, name: str, *allowed: Any, default: Any = None) -> Any:
        """An attribute that has to have one of a few values; the first is Relay's default unless one is given."""
        value = self.get(name, allowed[0] if default is None else default)
        if value not in allowed:
            self.refuse(f"{name} is {value!r}", " or ".join(map(repr, allowed)))
        return value

    def check_all_read(self) -> None:
        """Refuse attributes that the converter did not look at."""
        for name, value in self.attrs.items():
            if name in self._read or value is None or value == _INERT.get(name, ""):
                continue
            if name == "rate" or value == ():
                continue
            self.refuse(f"the attribute {name}={value!r} is not known", f"one of {', '.join(sorted(self._read))}")

    def check_size(self, *sizes: Any) -> None:
        """Refuse a constant of these sizes that the program does not hold itself when it is too large, or not known."""
        if not all(isinstance(d, int) for d in sizes) or math.prod(sizes) > _MOST_ELEMENTS:
            self.refuse(f"a table of {' x '.join(map(str, sizes))} elements", f"up to {_MOST_ELEMENTS}, known sizes")

    # --- results -----------------------------------------------------------------------------------------------------

    def tensor(self, value: Any, dtype: str) -> Symbol:
        """A constant."""
        return constant(np.asarray(value, dtype))

    def refuse(self, problem: str, expected: str = "") -> NoReturn:
        """Raise NotSupportedError: the call asks for what meta does not do."""
        raise NotSupportedError(self.name, problem, expected)


def constant(value: np.ndarray[Any, Any], dtype: str | None = None) -> Symbol:
    """A tensor that is known. dtype: where NumPy's name is not it (bfloat16)."""
    return Symbol(Constant(value, tensor_type(tuple(value.shape), dtype or str(value.dtype))))


def operand(value: Symbol, other: Symbol) -> Any:
    """A constant without axes as a Python number, where that means the same beside `other`; else the tensor."""
    found = number(value)
    if found is None or isinstance(found, bool) or value.dtype != other.dtype or number(other) is not None:
        return value
    return found if np.isfinite(found) else value


def operands(call: OpCall) -> tuple[Any, Any]:
    """The two tensors of a call, of one dtype; a constant without axes as a number."""
    x, y = call.tensors(2)
    if x.dtype != y.dtype:
        call.refuse(f"operands of dtypes {x.dtype} and {y.dtype}", "one dtype")
    return operand(x, y), operand(y, x)
