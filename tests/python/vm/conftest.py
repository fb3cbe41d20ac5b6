"""Planned programs are well-formed Relax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm

from meta.vm.build import generate
from meta.vm.plan import fusion

_sequence = fusion.sequence


def _checked(*names: Any) -> Callable[[Any], Any]:
    passes = _sequence(*names)

    def run(module: Any) -> Any:
        assert tvm.relax.analysis.check_well_formed(module, True), f"before {names}"
        return passes(module)

    return run


@pytest.fixture(autouse=True)
def _well_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "sequence", _checked)
