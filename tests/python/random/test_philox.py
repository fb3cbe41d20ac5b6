"""Philox: published test vectors, and equal bits from compiled kernels and the NumPy reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.backend.reference.philox import MULTIPLIERS, ROUNDS, philox
from meta.dtype import FLOATS
from meta.ir.type import tensor_type

# From the known-answer tests of the paper's code (kat_vectors, philox4x32 with 10 rounds).
TEST_VECTORS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
KEYS = [(0, 0), (1, 2), (-5, 7), (2**62 + 12345, 2**40 + 3)]


@pytest.mark.parametrize(("counter", "key", "block"), TEST_VECTORS)
def test_matches_published_vectors(counter: tuple[int, ...], key: tuple[int, ...], block: tuple[int, ...]) -> None:
    words = philox([np.array([c], np.uint64) for c in counter], [np.array([k], np.uint64) for k in key])
    assert tuple(int(w[0]) for w in words) == block


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_compiled_uniform_is_bit_exact(key: tuple[int, int], dtype: str) -> None:
    k = meta.array(np.array(key))
    ours = meta.uniform(k, (37, 11), dtype=dtype).numpy()
    with meta.with_dialect("reference"):
        assert np.array_equal(ours, meta.uniform(k, (37, 11), dtype=dtype).numpy())


@pytest.mark.parametrize("key", KEYS)
def test_compiled_integers_are_exact(key: tuple[int, int]) -> None:
    k = meta.array(np.array(key))
    ours = meta.randint(k, (300,), -(2**61), 2**62).numpy()
    with meta.with_dialect("reference"):
        assert np.array_equal(ours, meta.randint(k, (300,), -(2**61), 2**62).numpy())


def test_loops_of_any_number_of_elements_compute_a_block_once() -> None:
    from meta.backend.tvm import adapter as tvm
    from meta.backend.tvm.adapter import tirx
    from meta.backend.tvm.te.philox import unit, words
    from meta.backend.tvm.te.philox_expansion import expand, share_blocks

    size, i = tirx.Var("n", "int64"), tirx.Var("i", "int64")
    key, out = tirx.decl_buffer((2,), "int64", "key"), tirx.decl_buffer((size,), "float32", "out")
    number = unit(words(lambda j: tirx.BufferLoad(key, [j]), i, 1), "float32")
    loop = tvm.For(i, tirx.const(0, "int64"), size, tirx.ForKind.SERIAL, tvm.BufferStore(out, number, [i]))
    func = tvm.PrimFunc([key, out], loop)
    text = expand(share_blocks(func)).script()
    assert "chunk, lane in" in text
    # Two pairs of words for four elements, and one for an element after the last whole chunk.
    assert text.count(str(MULTIPLIERS[0])) == ROUNDS * 3
    assert expand(func).script().count(str(MULTIPLIERS[0])) == ROUNDS


@pytest.mark.parametrize("compiled", [False, True])
def test_elements_that_share_a_block(compiled: bool) -> None:
    """Those of one word and of two, in whole chunks and in the rest; a program of fixed sizes computes a block once."""
    k = meta.array(np.array([-3, 5]))

    def draw(key: Any) -> Any:
        words, pairs = meta.uniform(key, (9, 1000)), meta.randint(key, (4700,), 0, 1 << 40)
        short = meta.uniform(key, (1100,), dtype="bfloat16")
        return words, pairs, short, meta.dropout(meta.ones((2, 4200)), key, 0.5)[1]

    results = (meta.vm.compile(meta.trace(draw)) if compiled else draw)(k)
    with meta.with_dialect("reference"):
        for ours, theirs in zip(results, draw(k), strict=True):
            assert np.array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("dtype", FLOATS)
def test_compiled_normal_agrees(dtype: str) -> None:
    k = meta.array(np.array([7, 1]))
    ours = meta.normal(k, (700,), 1.0, 3.0, dtype).numpy().astype(np.float64)
    with meta.with_dialect("reference"):
        theirs = meta.normal(k, (700,), 1.0, 3.0, dtype).numpy().astype(np.float64)
    step = {"float64": 1e-14, "float32": 1e-5, "float16": 1e-2, "bfloat16": 1e-1}[dtype]
    assert np.abs(ours - theirs).max() < step


def test_numbers_depend_on_position_and_not_on_shape() -> None:
    k = meta.array(np.array([3, 4]))
    flat = meta.uniform(k, (24,)).numpy()
    assert np.array_equal(meta.uniform(k, (2, 3, 4)).numpy().ravel(), flat)
    assert np.array_equal(meta.uniform(k, (10,)).numpy(), flat[:10])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_computes_write_each_round_once(dtype: str) -> None:
    """TVM's passes take time in proportion to an expression written out in full: seconds if a round is repeated where
    it is read."""
    from meta.backend.tvm import adapter as tvm
    from meta.backend.tvm.te.philox_expansion import expand
    from meta.op.dialect.tvm import random

    key, low, high = (
        tvm.te.placeholder(s, d, n) for s, d, n in [((2,), "int64", "k"), ((), dtype, "a"), ((), dtype, "b")]
    )
    out = [tensor_type((8,), dtype)]
    for compute in (random.uniform, random.normal):
        func = tvm.create_prim_func([key, low, high, compute(key, (8,), low, high, dtype, out=out)])
        text = expand(func).script()
        pairs = 2 if compute is random.normal and dtype == "float64" else 1  # of words, each computed apart
        assert text.count(hex(MULTIPLIERS[0])) + text.count(str(MULTIPLIERS[0])) == ROUNDS * pairs


@pytest.mark.parametrize("p", [0.0, 2.0**-25, 2.0**-24, 0.1, 1 / 3, 0.5, 1 - 2.0**-24, 1 - 2.0**-25, 1.0])
def test_dropout_keeps_what_bernoulli_draws(p: float) -> None:
    """Shares at the edges of the 24 bits that count."""
    k, x = meta.array(np.array([7, 1])), meta.ones((3, 5000))
    with meta.with_dialect("reference"):
        kept = meta.bernoulli(k, x.shape, 1 - p, "bool").numpy()
    assert np.array_equal(meta.dropout(x, k, p)[1].numpy(), kept)
