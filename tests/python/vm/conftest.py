"""Programs are built with TVM's own check of Relax after each of its passes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tvm
from tvm.relax.ir.instrument import WellFormedInstrument


@pytest.fixture(autouse=True)
def _well_formed() -> Iterator[None]:
    with tvm.transform.PassContext(instruments=[WellFormedInstrument(validate_before_transform=False)]):
        yield
