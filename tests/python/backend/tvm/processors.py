"""Schedules for a processor other than this one, whose functions are compared but not run, and its choice of dialects,
whose kernels run on any."""

from __future__ import annotations

from functools import cache

import pytest

from meta.backend.tvm import target as targets
from meta.op import work

AVX2, AVX512 = "znver3", "znver4"
"""Processors with vectors of 256 and of 512 bits."""


def schedule_for(processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let schedules and targets be those of a processor, by LLVM's name."""
    monkeypatch.setattr(targets, "_chosen_cpu", lambda: processor)
    for function in (targets.target, targets.lanes, targets.vector_bits, targets.cpu_features):
        monkeypatch.setattr(targets, function.__name__, cache(function.__wrapped__))


def choose_for(feature: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Let dispatch choose as on processors with an instruction set."""
    request.addfinalizer(work.limits_of.cache_clear)
    monkeypatch.setattr(work, "_processor", lambda: feature)
    work.limits_of.cache_clear()
