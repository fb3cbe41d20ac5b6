"""Helpers that run recorded programs with the interpreter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import meta
from meta import tracing
from meta.interpreter.run import run
from meta.ir.builder import Module
from meta.ir.expr import MUTATES
from meta.ir.parser import parse
from meta.ir.printer import to_text
from meta.ir.verifier import verify
from meta.op.registry import get
from meta.random import default_generator
from meta.tracing import Record
from meta.tree import flatten


def check_ir(module: Module) -> Module:
    """The module, after a check that it is valid and that print -> parse -> print keeps it."""
    verify(module)
    text = to_text(module)
    assert to_text(parse(text, get)) == text
    return module


def execute(record: Record, *inputs: object, module: Module | None = None) -> object:
    """Run the program like a call of its function: returns the results and writes the state."""
    program = module or record.module
    arrays = [*inputs, *(x for _, x in record.state)]
    arrays += [(draws.generator or default_generator).draw(count=draws.count) for draws in record.random]
    with meta.no_grad():
        results = run(program, *arrays)
        mutated = program.main.attrs.get(MUTATES, {})
        for index, position in mutated.items():
            arrays[position].update(results[index])
    return record.result.build(iter([r for i, r in enumerate(results) if i not in mutated]))


def values(x: object) -> object:
    """Nests of arrays as nests of NumPy arrays."""
    if isinstance(x, dict):
        return {k: values(v) for k, v in x.items()}
    if isinstance(x, (tuple, list)):
        return [values(v) for v in x]
    return np.asarray(x) if isinstance(x, meta.NDArray) else x


def assert_equal(actual: object, expected: object, rtol: float = 1e-6) -> None:
    """Check that two nests have equal structure, dtypes and, up to rounding, values."""
    a, b = values(actual), values(expected)
    if isinstance(b, dict):
        assert a.keys() == b.keys()
        for key in b:
            assert_equal(a[key], b[key], rtol)
    elif isinstance(b, list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y, rtol)
    elif isinstance(b, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.astype("float64"), b.astype("float64"), rtol=rtol, atol=rtol)
    else:
        assert a == b


def array(*shape: int, seed: int = 0, dtype: str = "float32", grad: bool = False) -> meta.NDArray:
    """An array of normal random numbers."""
    x = meta.array(np.random.default_rng(seed).standard_normal(shape).astype("float32"), dtype=dtype)
    if grad:
        x.requires_grad = True
    return x


def check_agreement(function: Callable[..., object], *args: object, **kwargs: object) -> Record:
    """The record of a call, after a check that its program agrees with the eager call."""
    record = tracing.record(function, args, kwargs)
    check_ir(record.module)
    leaves, _ = flatten([args, kwargs], meta.NDArray)
    assert_equal(execute(record, *(x for _, x in leaves)), function(*args, **kwargs))
    return record
