"""The dtypes that the operators of ONNX take, and wider ones in which those compute the same that lack a dtype."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from meta.dtype import is_complex, real_dtype
from meta.ir.type import TensorType

_ONNX_NAMES: Final = {"float32": "float", "float64": "double"}
_META_NAMES: Final = {theirs: ours for ours, theirs in _ONNX_NAMES.items()}
_INTEGERS: Final = {
    "int8": ("int32", "int64"), "uint8": ("int32", "int64"), "int16": ("int32", "int64"), "uint16": ("int32", "int64"),
    "int32": ("int64",), "uint32": ("int64",),
}  # fmt: skip
_WIDER: Final = {"bfloat16": ("float32",), "float16": ("float32",), **_INTEGERS}
"""Dtypes that hold a dtype's values, the narrowest first. Sums and products of integers that are cast back wrap around
as they do in the narrow dtype."""
_HOLDING_FLOATS: Final = {
    "int8": "float32", "uint8": "float32", "int16": "float32", "uint16": "float32", "int32": "float64",
    "uint32": "float64",
}  # fmt: skip
_SELECTIONS: Final = ("MaxPool",)
"""Operators whose results are elements of their operand, which floats hold exactly."""


def element_type(dtype: str) -> int:
    """ONNX's number of a dtype."""
    import onnx

    return int(getattr(onnx.TensorProto, _ONNX_NAMES.get(dtype, dtype).upper()))


def dtype_of_element(number: int) -> str:
    """The dtype of a number of ONNX."""
    import onnx

    name = str(onnx.TensorProto.DataType.Name(number)).lower()
    return _META_NAMES.get(name, name)


def held_type(kind: TensorType) -> TensorType:
    """The type of the tensor that holds values of a type: of complex numbers the parts, along a last axis."""
    return kind.with_shape((*kind.shape, 2)).with_dtype(real_dtype(kind.dtype)) if is_complex(kind.dtype) else kind


def held_array(values: Any) -> Any:
    """The elements of a NumPy array as a tensor holds them."""
    return values.view(real_dtype(str(values.dtype))).reshape(*values.shape, 2) if values.dtype.kind == "c" else values


class UnwritableError(Exception):
    """An operator of ONNX takes neither a dtype nor a wider one."""


@dataclass(frozen=True, slots=True)
class OperatorSignature:
    """The types that an operator of ONNX takes and returns in one opset.

    inputs, outputs: for each tensor its type variable, such as "T", or its dtype if that is fixed; "" for the rest.
    variadic: whether the last input, and the last output, may be repeated.
    allowed: the dtypes that each type variable may have."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    variadic: tuple[bool, bool]
    allowed: Mapping[str, frozenset[str]]

    def bound(self, dtypes: Sequence[str]) -> dict[str, str]:
        """The dtype of each variable, from the dtypes of inputs ("" if unknown)."""
        pairs = zip(_repeated(self.inputs, self.variadic[0]), dtypes, strict=False)
        return {variable: dtype for variable, dtype in reversed(list(pairs)) if variable in self.allowed and dtype}

    def input_variables(self, count: int) -> list[str]:
        """The variable of each of the first inputs."""
        return [v for v, _ in zip(_repeated(self.inputs, self.variadic[0]), range(count), strict=False)]

    def output_variables(self, count: int) -> list[str]:
        return [v for v, _ in zip(_repeated(self.outputs, self.variadic[1]), range(count), strict=False)]


def _repeated(variables: Sequence[str], is_variadic: bool) -> Iterator[str]:
    yield from variables
    while is_variadic:
        yield variables[-1]


@cache
def signature(kind: str, opset: int) -> OperatorSignature:
    """The signature of ONNX's operator `kind`.

    It leaves out the type variable of variadic inputs or outputs that may differ in type, as for Loop."""
    import onnx.defs

    schema = onnx.defs.get_schema(kind, opset)
    allowed = {
        c.type_param_str: frozenset(filter(None, map(_dtype, c.allowed_type_strs))) for c in schema.type_constraints
    }
    option: Any = onnx.defs.OpSchema.FormalParameterOption.Variadic

    def variables(parameters: Any) -> tuple[str, ...]:
        return tuple(
            ("" if not p.is_homogeneous else p.type_str if p.type_str in allowed else _dtype(p.type_str))
            for p in parameters
        )

    lasts = tuple(bool(ps) and ps[-1].option == option for ps in (schema.inputs, schema.outputs))
    return OperatorSignature(variables(schema.inputs), variables(schema.outputs), (lasts[0], lasts[1]), allowed)


def casts(kind: str, opset: int, bound: Mapping[str, str]) -> dict[str, str]:
    """The wider dtypes for variables whose dtypes the operator does not take.

    Raises UnwritableError where there is none."""
    allowed = signature(kind, opset).allowed
    wanting = {variable: dtype for variable, dtype in bound.items() if dtype not in allowed[variable]}
    return {variable: _wider(kind, dtype, allowed[variable]) for variable, dtype in wanting.items()}


def _wider(kind: str, dtype: str, allowed: frozenset[str]) -> str:
    candidates = _WIDER.get(dtype, ())
    if kind in _SELECTIONS and dtype in _HOLDING_FLOATS:
        candidates = (_HOLDING_FLOATS[dtype],)
    for candidate in candidates:
        if candidate in allowed:
            return candidate
    raise UnwritableError(f"{kind} of {dtype}")


def _dtype(text: str) -> str:
    """The dtype of a type like "tensor(float)"; "" for others than tensors."""
    if not text.startswith("tensor("):
        return ""
    name = text[len("tensor(") : -1]
    return _META_NAMES.get(name, name)
