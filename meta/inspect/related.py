"""Other places that name an operator: names in frontends, sample rows of the generic tests, the reference page."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from meta.eager.explain import explain
from meta.errors import MetaError
from meta.inspect.called_operators import operators_called
from meta.inspect.sources import CHECKOUT, location, location_of_function, row
from meta.ir.type import TensorType, tensor_type
from meta.op.registry import Op

_SAMPLES = "tests.python.op.samples"
_PAGES = CHECKOUT / "docs/reference"


@dataclass(frozen=True, slots=True)
class RelayConverter:
    """A Relay operator whose converter calls the operator. location: of the converter."""

    name: str
    location: str | None


@dataclass(frozen=True, slots=True)
class Samples:
    """The sample rows of an operator.

    count: None where they cannot be read, for the reason `problem`.
    location: of the first.  candidates: for the first row on the CPU, what each dialect says."""

    count: int | None
    problem: str = ""
    location: str | None = None
    candidates: tuple[str, ...] = ()


@cache
def relay_names() -> Mapping[str, tuple[RelayConverter, ...]]:
    """Operator -> the Relay operators whose converters call it, from the table that the frontend has filled."""
    from meta.frontend.relay.convert.call import converters

    table: dict[str, list[RelayConverter]] = {}
    for name, converter in sorted(converters.rows().items()):
        for called in operators_called(converter):
            table.setdefault(called, []).append(RelayConverter(name, location_of_function(converter)))
    return {name: tuple(converted) for name, converted in table.items()}


def samples(op: Op, modules: Sequence[str] = ()) -> Samples:
    """The sample rows of an operator: from the repository, and from `SAMPLES` of the imported `modules`."""
    rows, problem = _all_rows(tuple(modules))
    own = [sample for sample in rows if sample.op == op.name]
    if not own and problem and op.family != "user":
        return Samples(None, problem)
    where = row(CHECKOUT / "tests/python/op/samples" / f"{op.family}.py", op.name, callees=("Sample",))
    return Samples(len(own), "", where, _tried(op, own[0]) if own else ())


@cache
def _all_rows(modules: tuple[str, ...]) -> tuple[tuple[Any, ...], str]:
    """Every sample row (meta.testing.Sample), and why the repository's cannot be read."""
    own = [sample for name in modules for sample in getattr(sys.modules[name], "SAMPLES", ())]
    if not (CHECKOUT / "tests/python/op/samples").is_dir():
        return tuple(own), "the samples are in the repository only"
    path = [*sys.path]
    sys.path.insert(0, str(CHECKOUT))
    try:
        return (*own, *import_module(_SAMPLES).samples()), ""
    except ModuleNotFoundError as error:
        return tuple(own), f"the samples need {error.name}"
    finally:
        sys.path[:] = path


def _tried(op: Op, sample: Any) -> tuple[str, ...]:
    """The answer of each dialect to a sample's call on the CPU; nothing for operators without a kernel."""

    def typed(tensor: Any, path: str) -> TensorType:
        del path
        return tensor_type(tensor.shape, tensor.dtype)

    arguments, keywords = sample.map(typed)
    try:
        return tuple(map(str, explain(op.name, *arguments, **keywords).candidates))
    except MetaError as error:
        return (f"refused: {error.summary}",)


def reference_page(op: Op) -> str | None:
    """`file:line` of the entry in the operator reference; None where there is none."""
    page = _PAGES / f"{op.family}.md"
    headings = (f"## {op.name}", f"### {op.name}")
    return next((location(page, i) for i, line in enumerate(_lines(page), 1) if line in headings), None)


@cache
def _lines(page: Path) -> tuple[str, ...]:
    return tuple(page.read_text(encoding="utf-8").splitlines()) if page.exists() else ()
