"""Sample rows by operator family; every module of this folder gives `SAMPLES` and, if it has any, `ERRORS`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from meta.testing.samples import ErrorCase, Sample


@cache
def families() -> tuple[ModuleType, ...]:
    """The modules of this folder."""
    families = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))
    return tuple(import_module(f"{__name__}.{name}") for name in families)


@cache
def samples() -> tuple[Sample, ...]:
    """Every row."""
    return tuple(row for module in families() for row in module.SAMPLES)


@cache
def errors() -> tuple[ErrorCase, ...]:
    """Every call that must be refused."""
    return tuple(row for module in families() for row in getattr(module, "ERRORS", ()))


@cache
def first_rows() -> frozenset[Sample]:
    """The first row of every operator."""
    first: dict[str, Sample] = {}
    for row in samples():
        first.setdefault(row.op, row)
    return frozenset(first.values())


def cases(rows: Sequence[Sample] | None = None, *, others: Sequence[str] = ()) -> pytest.MarkDecorator:
    """Parametrise a test over (sample, dtype); ids are `op-sample-dtype`.

    The first row of an operator runs in every floating dtype that it accepts, and in those of `others`; the rest of its
    rows in float32 (or the dtypes they name), for a kernel takes longer to build than to test."""
    params = []
    for row in samples() if rows is None else rows:
        first = row in first_rows() and row.check is None
        accepted = row.run_dtypes(others if first else ())
        for dtype in accepted if first or row.dtypes is not None else accepted[:1]:
            params.append(pytest.param(row, dtype, id=f"{row!r}-{dtype}".rstrip("-")))
    return pytest.mark.parametrize(("sample", "dtype"), params)
