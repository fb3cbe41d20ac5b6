"""Mutated files: IR text, Relay text and JSON, parameters, safetensors. The outcome may only be a module that verifies,
arrays, or an error of meta, within bounded time and memory. The mutations are those of `scripts/fuzz_relay.py`."""

from __future__ import annotations

import random
import re
import resource
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import meta
from meta.errors import MetaError
from meta.frontend.relay import from_relay
from meta.frontend.relay.errors import RelayError
from meta.ir.parser import parse
from meta.ir.printer import to_text
from meta.ir.verifier import verify
from meta.passes.standard import standard
from meta.testing.programs import trace_call
from scripts import fuzz_relay
from tests.python.frontend.relay.test_params import VALUES, binary, npz
from tests.python.op.samples import samples
from tests.python.vm import test_recursion

SECONDS = 10.0
"""Of processor time that one file may take."""
BYTES = 2 << 30
"""By which one file may raise the memory of the process."""
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_NUMBERS = (
    "0", "1", "2", "3", "7", "64", "-1", str(2**31), str(2**62), str(2**63 - 1), str(2**63), "9" * 500, "1e999", "nan",
    "inf", "True", "n", "n*n", "((n + 1)//(2))", '"x"', "None", "()", "(1, 2)", "{0: 0}",
)  # fmt: skip


@cache
def corpus() -> list[tuple[str, str, bytes]]:
    """Kind, name and contents of the files that are mutated."""
    files = list(fuzz_relay.files_of(fuzz_relay.DATA))
    files += [("params", "binary", binary(VALUES)), ("params", "npz", npz(a=np.zeros(3), b=np.arange(4)))]
    files.append(("tensors", "nest", _tensors()))
    texts = {name: getattr(test_recursion, name) for name in ("TAIL", "NOT_TAIL", "MUTUAL", "CLOSURE")}
    rng = random.Random(0)
    for sample in rng.sample(samples(), 60):
        texts[repr(sample)] = _program(sample)
    return files + [("ir", name, text.encode()) for name, text in texts.items() if text]


def _tensors() -> bytes:
    """A training state as `meta.save` writes it."""
    model = {name: meta.ones((2, 3), dtype=name) for name in ("float32", "bfloat16", "bool", "int64")}
    with tempfile.TemporaryDirectory() as folder:
        meta.save(f"{folder}/state", {"model": model, "step": 3, "history": [0.5, float("nan"), None, ("a", True)]})
        return Path(folder, "state").read_bytes()


def _program(sample: Any) -> str:
    """The text of a program that calls an operator as a sample does; "" for calls without arrays."""
    from meta.testing.generic import make_call

    call = make_call(sample).to_meta()
    try:
        return to_text(trace_call(call).record(call.arrays()).module) if call.arrays() else ""
    except MetaError:
        return ""


def case(seed: int, index: int) -> str:
    """One mutated file."""
    rng = random.Random(f"files/{seed}/{index}")
    kind, name, data = rng.choice(corpus())
    changed = _mutated(kind, data, rng)
    problem = bounded(lambda: read(kind, changed, rng))
    return f"{kind} {name}: {problem}\n{changed[:2000]!r}" if problem else ""


def bounded(reader: Callable[[], str]) -> str:
    """The result of `reader`, or a problem if it took more time or memory than a file may take."""
    before, start = _memory(), time.process_time()
    problem = reader()
    seconds, grown = time.process_time() - start, _memory() - before
    if seconds > SECONDS or grown > BYTES:
        return problem or f"took {seconds:.1f} s and {grown >> 20} MiB"
    return problem


def read(kind: str, data: bytes, rng: random.Random) -> str:
    """Read a file; returns the problem, "" if there is none."""
    try:
        if kind == "ir":
            return _read_ir(data.decode("utf-8", "replace"), rng)
        if kind == "tensors":
            _read_tensors(data)
            return ""
        if kind == "params" or rng.random() < 0.8:
            fuzz_relay.read_bytes(kind, data)
            return ""
        module = from_relay(data)
        assert module.verified
    except MetaError as error:
        return wrong_error(error, RelayError if kind in ("text", "json", "params") else MetaError)
    return ""


def wrong_error(error: MetaError, kind: type[MetaError]) -> str:
    """The problem with the error of a reader, whose errors have a class for each reader; "" if there is none."""
    if not isinstance(error, kind):
        return f"{type(error).__name__} and not {kind.__name__}: {error}"[:2000]
    return "" if len(str(error)) < 100_000 else f"an error of {len(str(error))} characters"


def _read_ir(text: str, rng: random.Random) -> str:
    module = parse(text)
    verify(module)
    printed = to_text(module)
    if to_text(parse(printed)) != printed:
        return "the printed module reads back as another"
    if rng.random() < 0.2:
        verify(standard()(module))
    return ""


def _read_tensors(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state")
        path.write_bytes(data)
        meta.load(path)


def _mutated(kind: str, data: bytes, rng: random.Random) -> bytes:
    if kind == "ir":
        return _mutated_ir(data, rng)
    if kind != "tensors":
        return fuzz_relay.mutated(kind, data, rng)
    end = 8 + int.from_bytes(data[:8], "little")
    if rng.random() < 0.3:
        return fuzz_relay.mutate_bytes(data, rng)
    header = _mutated_ir(data[8:end], rng)  # with a length that fits, most changes are read
    return len(header).to_bytes(8, "little") + header + data[end:]


def _mutated_ir(data: bytes, rng: random.Random) -> bytes:
    """A mutation by bytes, by tokens, or by numbers, which most often still parse."""
    choice = rng.random()
    if choice < 0.2:
        return fuzz_relay.mutate_bytes(data, rng)
    text = data.decode()
    if choice < 0.6:
        return fuzz_relay.mutate_tokens(text, rng).encode("utf-8", "replace")
    for _ in range(rng.choice((1, 1, 2, 4))):
        numbers = list(_NUMBER.finditer(text))
        if numbers:
            number = rng.choice(numbers)
            text = text[: number.start()] + rng.choice(_NUMBERS) + text[number.end() :]
    return text.encode()


def _memory() -> int:
    """The largest memory of the process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
