"""Sample rows by operator family; every module of this folder gives `SAMPLES` and, if it has any, `ERRORS`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from meta.testing.samples import OTHER_DTYPES, ErrorCase, Sample


@cache
def families() -> tuple[ModuleType, ...]:
    """The modules of this folder."""
    found = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))
    return tuple(import_module(f"{__name__}.{name}") for name in found)


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
    seen: dict[str, Sample] = {}
    for row in samples():
        seen.setdefault(row.op, row)
    return frozenset(seen.values())


def cases(rows: Sequence[Sample] | None = None, dtypes: Sequence[str] | None = None) -> pytest.MarkDecorator:
    """Parametrise a test over (sample, dtype); ids are `op-sample-dtype`.

    dtypes: those to run in, as far as a row runs in them; None for all, with integers for the first row of an operator."""
    params = []
    for row in samples() if rows is None else rows:
        others = OTHER_DTYPES if dtypes is None and row in first_rows() and row.check is None else ()
        for dtype in row.run_dtypes(others):
            if dtypes is None or dtype in dtypes or not dtype:
                params.append(pytest.param(row, dtype, id=f"{row!r}-{dtype}".rstrip("-")))
    return pytest.mark.parametrize(("sample", "dtype"), params)
