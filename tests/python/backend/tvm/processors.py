"""Schedules for a processor other than this one, whose functions are compared but not run, and its choice of dialects,
whose kernels run on any."""

from __future__ import annotations

import pytest

from meta.backend.tvm import cpu as cpus
from meta.modes import modes
from meta.op import work

AVX2, AVX512 = "znver3", "znver4"
"""Processors with vectors of 256 and of 512 bits."""


def schedule_for(processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let schedules and targets be those of a processor, by LLVM's name."""
    monkeypatch.setattr(modes, "cpu", cpus.CpuTarget(cpus.host().triple, processor))


def choose_for(feature: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Let dispatch choose as on processors with an instruction set."""
    request.addfinalizer(work.limits_of.cache_clear)
    monkeypatch.setattr(work, "_processor", lambda: feature)
    work.limits_of.cache_clear()
