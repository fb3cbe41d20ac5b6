"""Mutated programs and parameters are read or refused, and nothing else; `scripts/fuzz_relay.py` does it at length."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from meta.frontend.relay import from_relay
from meta.frontend.relay.errors import RelayError
from scripts import fuzz_relay
from tests.python.frontend.relay.test_params import VALUES, binary, npz

FILES = list(fuzz_relay.files_of(fuzz_relay.DATA))
PARAMS = [("params", "model.params", binary(VALUES)), ("params", "model.npz", npz(a=np.zeros(3), b=np.arange(4)))]


@pytest.mark.parametrize("seed", range(4))
def test_mutated_programs(seed: int) -> None:
    report = fuzz_relay.fuzz(FILES, 500, seed)
    assert report.failures == []
    assert report.runs == 500
    # Mutations that change little must get far: some programs still read, most do not.
    assert report.outcomes["text accepted"] > 10
    assert report.outcomes["json accepted"] > 10
    assert report.outcomes["text RelaySyntaxError"] > 100


def test_mutated_parameters() -> None:
    report = fuzz_relay.fuzz(PARAMS, 400, 0)
    assert report.failures == []
    assert 0 < report.outcomes["params accepted"] < 200


def test_a_failure_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(kind: str, data: bytes, convert: bool = False) -> Any:
        raise KeyError(kind)

    monkeypatch.setattr(fuzz_relay, "read_bytes", fails)
    report = fuzz_relay.fuzz(FILES, 3, 0)
    assert len(report.failures) == 3
    assert "KeyError" in report.failures[0]


def _chain(count: int, step: str, end: str) -> str:
    """A program whose values %1 to %count are each `step` of the one before ($), and whose result is `end` of the
    last."""
    steps = "".join(f"%{i} = {step.replace('$', '%x' if i == 1 else f'%{i - 1}')};\n" for i in range(1, count + 1))
    return f"def @main(%x: Tensor[(2), float32]) {{\n{steps}{end.replace('$', f'%{count}')}\n}}"


GROWING = {
    "shared tuples": (_chain(60, "($, $)", "$"), "a tuple of 131071 values"),
    "nested tuples": (_chain(500, "($, %x)", "$"), "nested 81 deep"),
    "scalars": ("def @main(%x: float32) { nn.batch_flatten(%x) }", "nn.batch_flatten"),
    "attributes": (_chain(1, "nn.pad($, 0f, pad_width=[1, None])", "$"), "nn.pad"),
}


@pytest.mark.parametrize("name", GROWING)
def test_converting_is_bounded(name: str) -> None:
    text, words = GROWING[name]
    with pytest.raises(RelayError, match=words):
        from_relay(text)


def test_mutations_follow_from_the_seed() -> None:
    def run(seed: int) -> list[bytes]:
        rng = random.Random(seed)
        return [fuzz_relay.mutated(kind, data, rng) for kind, _, data in FILES]

    assert run(1) == run(1)
    assert run(1) != run(2)
