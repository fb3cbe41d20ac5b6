"""Integers of 64 bits that programs of static sizes compute of other values keep their bits: TVM narrows indices, and
would narrow these with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tvm import te, tirx

import meta
from meta.backend.tvm.te.elementwise import let
from meta.schema import Arg, Schema, Tensor
from tests.python.vm.special_programs import special_inputs
from tests.python.vm.test_special_values import assert_same


def test_functions_of_the_bits_of_float64() -> None:
    def program(x: Any, y: Any) -> list[Any]:
        return [meta.copysign(x, y), meta.nextafter(x, y), meta.digamma(x)]

    x, y, _ = special_inputs("float64")
    assert_same(meta.vm.compile(meta.trace(program), fuse=False)(x, y), program(x, y), "vm")


def _is_large(value: Any) -> Any:
    wide = value.astype("int64")
    return let(wide * wide, lambda square: square > 5)


def _larger_negative(x: Any) -> Any:
    return te.compute(x.shape, lambda *i: let(-x(*i), lambda y: tirx.Select(_is_large(x(*i)), y, x(*i))))


@pytest.fixture(scope="module")
def larger_negative() -> Iterator[Any]:
    schema = Schema("larger_negative", Arg("x", Tensor))
    yield meta.define("larger_negative", schema, tvm=_larger_negative)(lambda x: x)
    meta.unregister("larger_negative")


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
def test_integers_computed_of_elements(larger_negative: Any, dtype: str) -> None:
    x = meta.array([65536, 3_000_000_000 if dtype != "int32" else 2**30, 2, 1, -65536, 5, 0, 7], dtype=dtype)
    results = meta.vm.compile(meta.trace(lambda x: [larger_negative(x)]))(x)
    assert_same(results, [larger_negative(x)], "vm")
    assert results[0].tolist() == [v if v * v <= 5 else -v for v in x.tolist()]
