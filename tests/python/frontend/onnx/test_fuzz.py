"""Mutated ONNX models are converted or refused, and nothing else; `scripts/fuzz_onnx.py` does it at length."""

from __future__ import annotations

import random
from typing import Any

import pytest

from scripts import fuzz_onnx

MODELS = fuzz_onnx.models()


def test_mutated_models() -> None:
    report = fuzz_onnx.MODELS.fuzz(MODELS, 300, 0)
    assert report.failures == []
    assert report.runs == 300
    # Mutations that change little must get far: many models still convert, most do not.
    assert report.outcomes["compiled"] > 50
    assert report.outcomes["OnnxError"] > 100


def test_a_failure_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(data: bytes) -> Any:
        raise KeyError(len(data))

    monkeypatch.setattr("meta.frontend.onnx.from_onnx", fails)
    report = fuzz_onnx.MODELS.fuzz(MODELS, 2, 0)
    assert len(report.failures) == 2
    assert "KeyError" in report.failures[0]


def test_mutations_follow_from_the_seed() -> None:
    def run(seed: int) -> list[bytes]:
        rng = random.Random(seed)
        return [fuzz_onnx.mutated(data, rng) for data in MODELS]

    assert run(1) == run(1)
    assert run(1) != run(2)
