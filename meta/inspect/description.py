"""`describe`: every part of an operator as data, with the lines where the parts are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from meta.inspect.gradient import Gradient, gradient
from meta.inspect.implementation import DialectKernel, kernels
from meta.inspect.related import RelayConverter, Samples, reference_page, relay_names, samples
from meta.inspect.sources import PACKAGE, line_of_assignment, location_of_function, row
from meta.op.precision import data_positions
from meta.op.registry import Op, get
from meta.schema._dsl import Schema

_AMP = {
    "always": "in float16 or bfloat16",
    "never": "in float32",
    "infer": "in the dtype of the largest operand",
    "keep": "in the dtypes of its arguments, which are not cast",
}


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument. default: as Python text; None if it is required."""

    name: str
    type: str
    default: str | None
    doc: str


@dataclass(frozen=True, slots=True)
class Description:
    """Every part of an operator. Locations are `file:line`, None where a part has no line.

    no_compute: why it has no TVM compute, but runs in libraries; "" for others.
    without_kernel: whether the result follows from types, or is the memory of an argument under another shape.
    amp_args: the arguments that mixed precision casts.
    names: further spellings: aliases, the method of arrays, Python's operator.
    """

    name: str
    family: str
    doc: str
    signature: str
    schema: str | None
    arguments: tuple[Argument, ...]
    results: tuple[str, ...]
    declaration: str | None
    type_function: str | None
    gradient: Gradient
    kernels: tuple[DialectKernel, ...]
    without_kernel: bool
    no_compute: str
    pattern: str
    amp: str
    amp_effect: str
    amp_args: tuple[str, ...]
    inplace: tuple[str, ...]
    view: bool
    resolve: bool
    recorded_as: str
    names: tuple[str, ...]
    relay: tuple[RelayConverter, ...]
    samples: Samples
    reference_page: str | None


def describe(name: str | Op, *, modules: Sequence[str] = ()) -> Description:
    """The parts of the operator called `name`.

    modules: names of imported modules whose `SAMPLES` (lists of meta.testing.Sample) count as sample rows.
    Raises RegistryError, with similar names, for an unknown operator."""
    op = name if isinstance(name, Op) else get(name)
    schema = op.schema
    return Description(
        name=op.name,
        family=op.family,
        doc=" ".join(op.doc.split()),
        signature=op.name + repr(schema)[len(schema.name) :],
        schema=schema_location(schema),
        arguments=tuple(
            Argument(a.name, str(a.type), None if a.required else repr(a.default), a.doc) for a in schema.args
        ),
        results=op.outputs,
        declaration=declaration(op),
        type_function=location_of_function(op.declare),
        gradient=gradient(op),
        kernels=kernels(op),
        without_kernel=op.view or _returns_value(op),
        no_compute=op.no_compute,
        pattern=op.pattern,
        amp=op.amp,
        amp_effect=_AMP[op.amp],
        amp_args=tuple(schema.names[i] for i in data_positions(op)),
        inplace=tuple(f"result {index} is written into {argument}" for index, argument in op.inplace.items()),
        view=op.view,
        resolve=op.resolve is not None,
        recorded_as=op.recorded_as,
        names=_names(op),
        relay=relay_names().get(op.name, ()),
        samples=samples(op, modules),
        reference_page=reference_page(op),
    )


def _returns_value(op: Op) -> bool:
    """Whether the result is a plain value, which follows from the types of the arguments."""
    return getattr(op.declare, "__annotations__", {}).get("return") == "Value"


def declaration(op: Op) -> str | None:
    """`file:line` of the row that declares an operator."""
    where = row(PACKAGE / "op/declare" / f"{op.family}.py", op.name, callees=("declare", "standard_"))
    return where or location_of_function(op.declare)


def schema_location(schema: Schema) -> str | None:
    """`file:line` of a schema in meta/schema; None for one from elsewhere."""
    return _schemas().get(schema)


@cache
def _schemas() -> dict[Schema, str | None]:
    """The schemas of the package and their lines."""
    package = import_module("meta.schema")
    out: dict[Schema, str | None] = {}
    for module in iter_modules(package.__path__):
        values = vars(import_module(f"meta.schema.{module.name}"))
        path = PACKAGE / "schema" / f"{module.name}.py"
        for name, value in values.items():
            if isinstance(value, Schema) and not name.startswith("_"):
                out[value] = line_of_assignment(path, name)
    return out


def _names(op: Op) -> tuple[str, ...]:
    method = f"x.{op.name}({', '.join(op.schema.names[1:])})" if op.method else ""
    return tuple(filter(None, (*op.aliases, method, op.operator)))
