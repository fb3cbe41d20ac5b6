"""Mutated ONNX models. The outcome may only be a program that verifies, or an error of meta, within bounded time and
memory. The mutations are those of `scripts/fuzz_onnx.py`."""

from __future__ import annotations

import random
from functools import cache
from importlib import import_module
from pathlib import Path

from meta.errors import MetaError
from meta.frontend.onnx import OnnxError, from_onnx
from meta.ir.verifier import verify
from meta.passes.standard import standard
from scripts import fuzz_onnx
from tests.attack.files import bounded, wrong_error

_LARGEST = 20_000
"""Bytes of a model that is mutated."""


@cache
def models() -> list[bytes]:
    """The models of `fuzz_onnx`, and those in the package `onnx`."""
    folder = Path(str(import_module("onnx").__file__)).parent
    files = [path.read_bytes() for path in sorted(folder.rglob("*.onnx")) if path.stat().st_size <= _LARGEST]
    return fuzz_onnx.models() + files


def case(seed: int, index: int) -> str:
    """One mutated model. Half of the cases mutate the first models, which use most of what conversion does."""
    rng = random.Random(f"onnx/{seed}/{index}")
    model = rng.choice(models()[: len(fuzz_onnx.TEXTS)] if rng.random() < 0.5 else models())
    changed = fuzz_onnx.mutated(model, rng)
    return bounded(lambda: _read(changed, rng))


def _read(data: bytes, rng: random.Random) -> str:
    try:
        program = from_onnx(data)
        if rng.random() < 0.1 and program.undecided is None:
            verify(standard()(program.module))
    except MetaError as error:
        return wrong_error(error, OnnxError)
    return ""
