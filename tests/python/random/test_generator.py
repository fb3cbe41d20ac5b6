"""Seeds, keys and generators."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import meta
from meta.errors import ArgumentError
from meta.random import Generator
from tests.python.kernels_in_memory import kernels_of


def test_equal_seeds_give_equal_numbers() -> None:
    meta.random.seed(5)
    first = [meta.random.normal((3,)).tolist() for _ in range(3)]
    meta.random.seed(5)
    assert [meta.random.normal((3,)).tolist() for _ in range(3)] == first
    assert first[0] != first[1]
    meta.random.seed(6)
    assert meta.random.normal((3,)).tolist() != first[0]


def test_keys_consist_of_seed_and_offset() -> None:
    generator = Generator(-3)
    assert [generator.next_key().tolist() for _ in range(2)] == [[-3, 0], [-3, 1]]
    assert generator.next_key(count=5).tolist() == [-3, 2]
    key = generator.next_key()
    assert key.tolist() == [-3, 7]
    assert (key.dtype, key.shape) == ("int64", (2,))


def test_generators_are_independent() -> None:
    meta.random.seed(1)
    generator = Generator(1)
    assert meta.random.uniform((4,), generator=generator).tolist() == meta.random.uniform((4,)).tolist()
    before = meta.random.default_generator.state
    meta.random.uniform((4,), generator=generator)
    assert meta.random.default_generator.state == before


def test_state_is_saved_and_restored() -> None:
    generator = Generator(9)
    generator.next_key()
    saved = generator.state
    first = generator.next_key().tolist()
    generator.state = saved
    assert generator.next_key().tolist() == first
    assert repr(generator) == "<Generator seed=9, offset=2>"


def test_threads_never_share_a_key() -> None:
    generator = Generator(0)
    with ThreadPoolExecutor(8) as pool:
        offsets = list(pool.map(lambda _: generator.advance()[1], range(2000)))
    assert sorted(offsets) == list(range(2000))


@pytest.mark.parametrize("seed", [1.5, "1", 2**63, None])
def test_rejects_invalid_seeds(seed: object) -> None:
    with pytest.raises(ArgumentError, match=r"\[seed\] the seed is"):
        Generator(seed)  # type: ignore[arg-type]


def test_float_arguments_do_not_recompile() -> None:
    meta.random.uniform((2, 2), 0.0, 1.0)
    before = kernels_of("uniform")
    assert before
    meta.random.uniform((5, 7), -0.125, 0.375)
    assert kernels_of("uniform") == before
    assert np.all(np.abs(meta.random.uniform((50,), 2.0, 2.5).numpy() - 2.25) <= 0.25)
