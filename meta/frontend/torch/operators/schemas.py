"""Schemas of meta as schemas of torch, and the arguments of a call in either."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import isfinite
from typing import Any

import torch

from meta import dtype as dtypes
from meta.dim_expressions import SizeNumber
from meta.errors import NotSupportedError
from meta.op.registry import Op
from meta.records import record
from meta.schema._dsl import Arg, TensorLike
from meta.tree import is_sequence

_TYPES: Mapping[str, tuple[str, ...]] = {
    "Tensor": ("Tensor",), "TensorList": ("Tensor[]",), "Scalar": ("Tensor", "Scalar"), "Number": ("Scalar",),
    "NumberOrSize": ("Scalar",), "FillValue": ("Scalar",), "Int": ("SymInt",), "Float": ("float",), "Bool": ("bool",),
    "Str": ("str",), "Choice": ("str",), "IntTuple": ("SymInt[]",), "IntPairs": ("SymInt[]",),
    "Sections": ("SymInt", "SymInt[]"), "DType": ("ScalarType",), "Device": ("Device",),
}  # fmt: skip
"""Argument types of meta -> torch's types: of the operator itself, then of its overload by the argument's name."""


@record
class TorchParameter:
    """An argument of an overload. type: torch's, with its optional mark. default: as torch writes it, "" without one.

    stands_in: whether None means the argument's default, which torch's schemas cannot write."""

    arg: Arg
    type: str
    default: str
    stands_in: bool

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor or a list of them."""
        return self.type.startswith("Tensor")

    @property
    def is_list(self) -> bool:
        """Whether it is a list of tensors."""
        return self.type.startswith("Tensor[")

    @property
    def text(self) -> str:
        return f"{self.type} {self.arg.name}" + (f"={self.default}" if self.default else "")

    def from_torch(self, value: Any, size: Callable[[Any], Any]) -> Any:
        """An argument other than tensors as meta takes it. size: of a SymInt."""
        if value is None:
            return self.arg.default if self.stands_in else None
        if isinstance(value, torch.dtype):
            return dtypes.canonical(value)
        if isinstance(value, torch.device):
            return str(value)
        if isinstance(value, (list, tuple)):
            return tuple(size(item) if isinstance(item, torch.SymInt) else item for item in value)
        if isinstance(value, torch.SymFloat):  # Python's `n ** 0.5` of a symbolic size
            return SizeNumber("add", value, 0.0) if self.arg.type.role == "scalar" else float(value)
        return size(value) if isinstance(value, torch.SymInt) else value

    def normal(self, op: str, value: Any, size: Callable[[Any], Any]) -> Any:
        """`from_torch` in the normal form that type functions and gradients take."""
        return self.arg.normalize(op, self.from_torch(value, size))


@record
class TorchOverload:
    """One signature of an operator. name: "" for the operator itself."""

    name: str
    parameters: tuple[TorchParameter, ...]
    results: str

    def schema(self, operator: str) -> str:
        """Its schema as torch writes it."""
        name = f"{operator}.{self.name}" if self.name else operator
        return f"{name}({', '.join(p.text for p in self.parameters)}) -> {self.results}"

    def complete(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of a call; torch leaves out those at the end that are defaults."""
        return (*args, *self.defaults()[len(args) :])

    def types(
        self, op: str, args: tuple[Any, ...], type_of: Callable[[Any], Any], size: Callable[[Any], Any]
    ) -> tuple[Any, ...]:
        """The arguments of a complete call as type functions take them."""
        out: list[Any] = []
        for parameter, value in zip(self.parameters, args, strict=True):
            if not parameter.is_tensor or value is None:
                out.append(parameter.normal(op, value, size))
            else:
                out.append(tuple(map(type_of, value)) if is_sequence(value) else type_of(value))
        return tuple(out)

    def defaults(self) -> tuple[Any, ...]:
        """The values of torch's defaults; absent ones are None."""
        return tuple(None if p.stands_in or p.arg.required else p.arg.default for p in self.parameters)


def overloads(op: Op) -> tuple[TorchOverload, ...]:
    """The signatures of an operator, the one without a name first.

    Raises NotSupportedError, by the operator's name, for one that torch cannot call."""
    reason = _refusal(op)
    if reason:
        raise NotSupportedError(op.name, f"torch cannot call it: {reason}", "functional operators of tensors")
    choices = [_TYPES[a.type.name.rstrip("?")] for a in op.schema.args]
    out: list[TorchOverload] = []
    for types in product(*choices):
        if op.schema.tensor_positions and not any(kind.startswith("Tensor") for kind in types):
            continue
        others = [a.name for a, kind, own in zip(op.schema.args, types, choices, strict=True) if kind != own[0]]
        parameters = tuple(_parameter(a, kind) for a, kind in zip(op.schema.args, types, strict=True))
        out.append(TorchOverload("_".join(others), parameters, _results(op)))
    return tuple(out)


def _refusal(op: Op) -> str:
    """Why torch cannot call an operator, "" if it can."""
    if op.inplace:
        return f"it writes {', '.join(sorted(set(op.inplace.values())))} in place"
    if op.family == "collective":
        return "it communicates with other processes"
    if returns_values(op):
        return "it returns sizes or numbers"
    unknown = [a.name for a in op.schema.args if a.type.name.rstrip("?") not in _TYPES]
    return f"torch has no type for its argument '{unknown[0]}'" if unknown else ""


def returns_values(op: Op) -> bool:
    """Whether an operator may return sizes or numbers, which need no kernel."""
    return "Value" in str(getattr(op.declare, "__annotations__", {}).get("return", ""))


def _results(op: Op) -> str:
    if op.outputs == ("*",):
        return "Tensor[]"
    return "Tensor" if len(op.outputs) < 2 else f"({', '.join(['Tensor'] * len(op.outputs))})"


def _parameter(arg: Arg, kind: str) -> TorchParameter:
    if arg.required:
        return TorchParameter(arg, f"{kind}?" if arg.type.optional else kind, "", False)
    text = "None" if arg.default is None else _written(arg.default, kind)
    stands_in = text == ""
    is_optional = arg.type.optional or stands_in
    return TorchParameter(arg, f"{kind}?" if is_optional else kind, text or "None", stands_in)


def _written(default: Any, kind: str) -> str:
    """A default as torch's schemas write it, "" if they cannot."""
    if kind in ("ScalarType", "Device", "Tensor"):
        return ""
    if isinstance(default, str):
        return f'"{default}"' if default.isprintable() and '"' not in default and "\\" not in default else ""
    if is_sequence(default):
        return f"[{', '.join(map(str, default))}]"
    return str(default) if not isinstance(default, float) or isfinite(default) else ""


def overload_of(op: Op, args: Sequence[Any]) -> str:
    """The name of the overload that takes these arguments, tensors being meta's."""
    names: list[str] = []
    for arg, value in zip(op.schema.args, args, strict=True):
        if (arg.type.role == "scalar" and value is not None and not isinstance(value, TensorLike)) or (
            arg.type.name == "Sections" and is_sequence(value)
        ):
            names.append(arg.name)
    return "_".join(names)


def to_torch(value: Any, size: Callable[[Any], Any], parameter: TorchParameter) -> Any:
    """An argument of meta other than tensors, in normal form, as torch takes it. size: of a symbolic one."""
    if value is None:
        return None
    if parameter.type.startswith("ScalarType"):
        return getattr(torch, value)
    if parameter.type.startswith("Device"):
        return torch.device(value.kind if value.kind == "cpu" else str(value).replace("(", ":").replace(")", ""))
    return [size(item) for item in value] if is_sequence(value) else size(value)
