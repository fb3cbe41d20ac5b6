"""Which tensors are cast before ranks gather them, and before sums on GPUs."""

from __future__ import annotations

from typing import Any

import pytest

import meta
from meta import passes
from tests.python.passes.programs import lines, program

GROUP: Any = ("dp", 2)


def narrowed(function: Any, *types: Any) -> list[str]:
    """The bindings of a program after the pass, without those that nothing reads."""
    return lines(passes.dce(passes.narrow_gathers(program(function, *types))))


def test_a_cast_of_what_is_gathered_comes_before() -> None:
    def weights(shard: Any) -> Any:
        whole = meta.all_gather(shard, 0, *GROUP)
        return meta.transpose(meta.reshape(whole, (3, 4)), (1, 0)).cast("bfloat16")

    cast, gather, shape, order, result = narrowed(weights, (6,))
    assert 'cast(%shard, dtype="bfloat16")' in cast
    assert "all_gather(%0" in gather
    assert "reshape(%1, shape=(3, 4))" in shape
    assert "transpose(%2, axes=(1, 0))" in order
    assert result == "(%3,)"


def both(shard: Any) -> Any:
    whole = meta.all_gather(shard, 0, *GROUP)
    return whole.cast("bfloat16"), whole


def computed(shard: Any) -> Any:
    return meta.exp(meta.all_gather(shard, 0, *GROUP)).cast("bfloat16")


def widened(shard: Any) -> Any:
    return meta.all_gather(shard, 0, *GROUP).cast("float64")


def one_reader(shard: Any) -> Any:
    return meta.reshape(shard, (2, 3)).cast("bfloat16")


@pytest.mark.parametrize("function", [both, computed, widened, one_reader])
def test_other_casts_stay(function: Any) -> None:
    assert narrowed(function, (6,)) == lines(program(function, (6,)))


def bias_gradient(dy: Any) -> Any:
    return meta.reshape(meta.sum(dy.cast("bfloat16"), 0, True), (4,)).cast("float32")


def summed_and_read(dy: Any) -> Any:
    total = meta.sum(dy.cast("bfloat16"), 0)
    return total.cast("float32"), total


def test_sums_of_halves_on_gpus_take_casts_in() -> None:
    def widened(function: Any) -> list[str]:
        return lines(passes.dce(passes.widen_sums(passes.place("cuda")(program(function, (3, 4))))))

    half, wide, total, shape, _ = widened(bias_gradient)
    assert 'dtype="bfloat16"' in half
    assert 'cast(%0, dtype="float32")' in wide
    assert "sum(%1" in total
    assert "reshape(%2" in shape
    assert widened(summed_and_read) == lines(passes.place("cuda")(program(summed_and_read, (3, 4))))
    assert lines(passes.widen_sums(program(bias_gradient, (3, 4)))) == lines(program(bias_gradient, (3, 4)))
