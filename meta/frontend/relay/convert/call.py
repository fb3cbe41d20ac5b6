"""`OpCall`: the call of a Relay operator that a converter is given. Every attribute is read or refused.

The modules in `ops/` fill the table of converters:

    @converter("nn.dense")
    def dense(call: OpCall) -> Any: ...

    rows({"tile": lambda call: meta.tile(call.argument, call.sizes("reps"))})
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

import numpy as np

from meta.errors import NotSupportedError, TypeInferenceError
from meta.frontend.relay import ast
from meta.frontend.relay.convert.folding import fold
from meta.frontend.relay.convert.values import describe, scalar_value
from meta.frontend.rows import RowTable
from meta.ir.builder import Builder
from meta.ir.expr import Constant
from meta.ir.type import tensor_type
from meta.tracing.symbol import Symbol
from meta.tree import is_tuple

converters = RowTable("meta.frontend.relay.ops")
"""The converters by Relay's names of operators."""

_INPUTS: Mapping[str, tuple[int, tuple[str, ...]]] = MappingProxyType({
    "broadcast_to": (1, ("shape",)),
    "expand_dims": (1, ("axis",)),
    "full": (1, ("shape",)),
    "nn.upsampling": (1, ("scale_h", "scale_w")),
    "nn.upsampling3d": (1, ("scale_d", "scale_h", "scale_w")),
    "one_hot": (3, ("depth",)),
    "ones": (0, ("shape",)),
    "reshape": (1, ("newshape",)),
    "squeeze": (1, ("axis",)),
    "strided_slice": (1, ("begin", "end", "strides")),
    "tile": (1, ("reps",)),
    "topk": (1, ("k",)),
    "zeros": (0, ("shape",)),
})  # fmt: skip
"""How many tensors an operator has, and its attributes that a call may give as inputs behind them. `dyn.tile` has the
converter of `tile`, and its options are inputs."""

_INERT = {
    "auto_scheduler_rewritten_layout": "",
    "meta_schedule_original_shape": (),
    "out_layout": "",
    "rate": None,
}
"""Attributes without influence on the result, with their neutral value: a layout chosen by a tuner, an output layout
equal to the input's, and the rate of an inactive dropout."""


_MAX_ELEMENTS = 1 << 22
"""Elements of a table of positions or weights that a converter computes."""


Converter: TypeAlias = "Callable[[OpCall], Any]"


class OpCall:
    """A call being converted.

    name: Relay's name of the operator.  args: Symbols and tuples of Symbols, in order.  place: of the call.
    shapes: by atom of a tensor that holds a shape with symbolic sizes, those sizes.
    """

    __slots__ = ("_inputs", "_read", "args", "attrs", "builder", "name", "place", "shapes")

    def __init__(
        self, name: str, args: tuple[Any, ...], attrs: ast.Attributes, place: ast.Place, builder: Builder,
        shapes: dict[Any, tuple[Any, ...]] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.args = args
        self._inputs: dict[str, Any] = {}
        self.attrs: Mapping[str, Any] = attrs
        self.place = place
        self.builder = builder
        self.shapes = {} if shapes is None else shapes
        self._read: set[str] = set()

    def take_options(self) -> None:
        """Let inputs behind the operator's tensors be its attributes."""
        count, options = _INPUTS.get(self.name.removeprefix("dyn."), (0, ()))
        self._inputs = dict(zip(options, self.args[count:], strict=False))
        if options:
            self.args = (*self.args[:count], *self.args[count + len(options) :])

    # --- arguments ---------------------------------------------------------------------------------------------------

    def tensors(self, least: int, most: int | None = None) -> tuple[Any, ...]:
        """The arguments: `least` to `most` tensors."""
        if not least <= len(self.args) <= (least if most is None else most):
            raise TypeInferenceError(self.name, f"{len(self.args)} arguments", str(least))
        for arg in self.args:
            if not isinstance(arg, Symbol):
                raise TypeInferenceError(self.name, f"an argument is {describe(arg)}", "a tensor")
        return self.args

    @property
    def argument(self) -> Any:
        """The argument of a call that has one, a tensor."""
        return self.tensors(1)[0]

    def tuple(self, index: int = 0) -> tuple[Any, ...]:
        """Argument `index`, a tuple of tensors."""
        fields = self.args[index] if index < len(self.args) else None
        if not is_tuple(fields) or not all(isinstance(f, Symbol) for f in fields):
            raise TypeInferenceError(self.name, f"argument {index} is not a tuple of tensors")
        return fields

    def constant(self, value: object, subject: str) -> np.ndarray[Any, Any]:
        """The value of a constant tensor. Raises NotSupportedError, about `subject`, for other tensors."""
        folded = fold(value, self.builder) if isinstance(value, Symbol) else None
        if folded is None:
            self.refuse(f"{subject} is computed by the program", "a value that follows from constants and shapes")
        return folded

    def ints(self, value: object, subject: str) -> tuple[Any, ...]:
        """The ints in a constant tensor of at most one axis, or the sizes in a tensor that holds a shape."""
        if isinstance(value, Symbol) and value.atom in self.shapes:
            return self.shapes[value.atom]
        return tuple(int(v) for v in self.constant(value, subject).ravel().tolist())

    def number(self, value: object, subject: str) -> Any:
        """The number in a constant tensor of one element."""
        folded = self.constant(value, subject)
        if folded.size != 1:
            self.refuse(f"{subject} has shape {folded.shape}", "one number")
        return folded.item()

    def maybe_number(self, value: Symbol) -> Any:
        """The number in a tensor of one element, None unless it is constant."""
        if value.size != 1:
            self.refuse(f"a value of shape {value.shape}", "one number")
        folded = fold(value, self.builder)
        return None if folded is None else folded.item()

    # --- attributes --------------------------------------------------------------------------------------------------

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute; `default` is Relay's default, which text omits."""
        self._read.add(name)
        if name in self._inputs:
            return self.number(self._inputs[name], name)
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
        # Relay stores some defaults in 32 bits.
        return default if math.isclose(value, default, rel_tol=2e-7) else float(value)

    def text(self, name: str, default: str = "") -> str:
        """A string; "" by default."""
        return str(self.get(name, default) or "")

    def axes(self, name: str = "axis") -> tuple[int, ...] | None:
        """The ints of an attribute that is one int or several; None if it is not set."""
        if name in self._inputs:
            self._read.add(name)
            return self.ints(self._inputs[name], name)
        value = self.get(name)
        if value is None:
            return None
        axes = value if is_tuple(value) else (value,)
        if not all(isinstance(v, int) for v in axes):
            self.refuse(f"{name} is {value!r}", "ints")
        return tuple(map(int, axes))

    def sizes(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """The ints of an attribute that is one int or several. Open sizes (`?`) are refused."""
        sizes = self.axes(name)
        if sizes is None or (sizes == () and default):
            if default is None:
                self.refuse(f"{name} is missing", "ints")
            return default
        return sizes

    def floats(self, name: str, default: tuple[float, ...]) -> tuple[float, ...]:
        """The numbers of an attribute that is a list of them."""
        value = self.get(name, default)
        if not is_tuple(value) or not all(isinstance(v, (int, float)) for v in value):
            self.refuse(f"{name} is {value!r}", "numbers")
        return tuple(map(float, value)) or default

    def only(self, name: str, *allowed: object, default: object = None) -> Any:
        """An attribute whose value is in `allowed`; the first is the default unless `default` is set."""
        value = self.get(name, allowed[0] if default is None else default)
        if value not in allowed:
            self.refuse(f"{name} is {value!r}", " or ".join(map(repr, allowed)))
        return value

    def check_all_read(self) -> None:
        """Refuse attributes that the converter did not read."""
        for name, value in self.attrs.items():
            if name in self._read or value is None or value == _INERT.get(name, ""):
                continue
            if name == "rate" or value == ():
                continue
            expected = f"one of {', '.join(sorted(self._read))}" if self._read else "no attributes"
            self.refuse(f"unknown attribute {name}={value!r}", expected)

    def check_size(self, *sizes: Any) -> None:
        """Refuse to compute a table of these sizes if it is too large or a size is open."""
        if not all(isinstance(d, int) for d in sizes) or math.prod(sizes) > _MAX_ELEMENTS:
            self.refuse(
                f"a table of {' x '.join(map(str, sizes))} elements", f"at most {_MAX_ELEMENTS} and no open size"
            )

    # --- results -----------------------------------------------------------------------------------------------------

    def tensor(self, value: Any, dtype: str) -> Symbol:
        """A constant."""
        return constant(np.asarray(value, dtype))

    def refuse(self, problem: str, expected: str = "") -> NoReturn:
        """Raise NotSupportedError about the call."""
        raise NotSupportedError(self.name, problem, expected)


def converter(*names: str) -> Callable[[Converter], Converter]:
    """Enter the decorated function for the operators called `names`."""
    return converters.row(*names, *(f"dyn.{name}" for name in names if name in _INPUTS))


def rows(functions: Mapping[str, Converter]) -> None:
    """Enter a converter for each operator."""
    for name, function in functions.items():
        converter(name)(function)


def constant(value: np.ndarray[Any, Any], dtype: str | None = None) -> Symbol:
    """A constant tensor. dtype: where NumPy's name differs (bfloat16)."""
    return Symbol(Constant(value, tensor_type(tuple(value.shape), dtype or str(value.dtype))))


def operand(value: Symbol, other: Symbol) -> Any:
    """A constant without axes as a Python number, if it has the same meaning beside `other`; else the tensor."""
    number = scalar_value(value)
    if number is None or isinstance(number, bool) or value.dtype != other.dtype or scalar_value(other) is not None:
        return value
    return number if np.isfinite(number) else value


def operands(call: OpCall) -> tuple[Any, Any]:
    """The two tensors of a call, of one dtype; a constant without axes as a number."""
    x, y = call.tensors(2)
    if x.dtype != y.dtype:
        call.refuse(f"operands of dtypes {x.dtype} and {y.dtype}", "one dtype")
    return operand(x, y), operand(y, x)
