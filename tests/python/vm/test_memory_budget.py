"""`compile(..., memory_budget=)`: tensors are computed again, results stay the same, and the trade is reported."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta import nn
from meta.errors import ArgumentError, NotSupportedError
from meta.optim.sgd import with_sgd
from meta.vm.plan.budget import parse_bytes
from tests.python.kernels_in_memory import forget_programs
from tests.python.vm.programs import assert_same, program, randoms

BATCH, WIDTH = 256, 32


def compiled(**options: Any) -> tuple[Any, meta.Model, tuple[Any, Any]]:
    """A training step whose activations need more memory than its weights, with the model and a batch."""
    meta.random.seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 10))
    x = meta.array(np.random.default_rng(0).standard_normal((BATCH, WIDTH)).astype("float32"))
    y = meta.array(np.arange(BATCH) % 10)
    step = meta.vm.compile(with_sgd(0.1, 0.9)(model, loss=meta.cross_entropy), **options)
    return step, model, (x, y)


@pytest.fixture(name="plain", scope="module")
def _plain() -> tuple[int, list[float], list[Any]]:
    """Without a budget: the bytes of a step, the losses of three, and the parameters after them."""
    step, model, batch = compiled()
    losses = [step(*batch).item() for _ in range(3)]
    return step.memory(*batch).total, losses, [p.detach().numpy() for p in model.parameters()]


def test_results_stay_the_same_in_less_memory(plain: tuple[int, list[float], list[Any]]) -> None:
    total, losses, parameters = plain
    step, model, batch = compiled(memory_budget=int(0.8 * total))
    assert [step(*batch).item() for _ in range(3)] == losses
    for ours, theirs in zip(model.parameters(), parameters, strict=True):
        np.testing.assert_array_equal(ours.detach().numpy(), theirs)
    memory = step.memory(*batch)
    trade = memory.trade
    assert trade is not None
    assert memory.total <= trade.budget == int(0.8 * total)
    assert (trade.before, trade.after, trade.saved) == (total, memory.total, total - memory.total)
    assert any("tvm.gelu" in r.operators for r in trade.recomputed)
    assert trade.moved == sum(r.moved for r in trade.recomputed) > 0
    for text in (str(memory), step.explain(*batch)):
        assert f"memory: {memory.total:,} of {trade.budget:,} bytes; without the budget {total:,}\n" in text
        assert re.search(r"\d+ kernels run again and move [\d,]+ bytes, [\d.]+% of what all kernels move", text)
        assert re.search(
            r"\d+ x [\w., +]*tvm\.gelu[\w., +]*: [\d,]+ bytes need not be kept, [\d,]+ are moved again", text
        )


def test_the_error_names_a_budget_that_can_be_reached() -> None:
    step, _, batch = compiled(memory_budget="1KB")
    with pytest.raises(ArgumentError) as caught:
        step(*batch)
    match = re.fullmatch(
        r"\[vm\] memory_budget is 1,000 bytes; the program needs [\d,]+, or ([\d,]+) if it computes tensors again; "
        r"expected at least ([\d,]+) bytes \([\d.]+ MiB\); raise the budget, or use smaller batches or mixed precision "
        r"\(at .*test_memory_budget\.py:\d+\)",
        str(caught.value),
    )
    assert match is not None
    assert match[1] == match[2]
    least = int(match[2].replace(",", ""))
    step, _, batch = compiled(memory_budget=least)
    assert step.memory(*batch).total <= least


def test_budgets_that_suffice_change_nothing(plain: tuple[int, list[float], list[Any]]) -> None:
    total, _, _ = plain
    step, _, batch = compiled(memory_budget=total)
    memory = step.memory(*batch)
    assert memory.total == total
    assert memory.trade is not None
    assert memory.trade.recomputed == ()
    assert str(memory).endswith(f"without the budget {total:,}, so that nothing is computed again")


def test_programs_on_disk_and_in_files_know_their_trade(
    plain: tuple[int, list[float], list[Any]], tmp_path: Path
) -> None:
    total, _, _ = plain
    step, _, batch = compiled(memory_budget=int(0.8 * total))
    trade = step.memory(*batch).trade
    forget_programs()
    step, _, batch = compiled(memory_budget=int(0.8 * total))
    assert step.program(*batch).loaded.origin == "disk"
    assert step.memory(*batch).trade == trade
    step.save(tmp_path / "step.meta")
    assert meta.vm.load(tmp_path / "step.meta").memory(*batch).trade == trade


def test_values_of_parameters_before_their_update_are_not_computed_again() -> None:
    """`kept` is computed from w, which is overwritten before `kept` is read again; `free` comes from x."""

    def body(ops: Any, x: Any, w: Any) -> list[Any]:
        kept, free = ops.cumsum(w, axis=0), ops.cumsum(x, axis=0)
        new = ops.add(w, ops.cumsum(ops.add(kept, free), axis=1))
        a = ops.cumsum(ops.multiply(new, 2.0), axis=0)
        b = ops.cumsum(ops.add(ops.cumsum(a, axis=0), a), axis=1)
        return [ops.cumsum(ops.add(ops.multiply(b, kept), free), axis=0), new]

    module = program({"x": (64, 48), "w": (64, 48)}, body, mutates={1: 1})
    plain = meta.vm.compile(module)
    x, w = randoms((64, 48), (64, 48))
    expected, total = plain(x, w), plain.memory(x, w).total
    executor = meta.vm.compile(module, memory_budget=total - x.nbytes)
    x, w = randoms((64, 48), (64, 48))
    assert_same(executor(x, w), expected, rtol=0.0, atol=0.0)
    trade = executor.memory(x, w).trade
    assert trade is not None
    assert sum(r.runs for r in trade.recomputed) == 1
    assert trade.after == total - x.nbytes
    with pytest.raises(ArgumentError, match="at least"):
        meta.vm.compile(module, memory_budget=total - 2 * x.nbytes)(x, w)


def test_sizes_have_to_be_known() -> None:
    @meta.trace
    def double(x: Any) -> Any:
        return meta.cumsum(x, axis=0) * 2.0

    executor = meta.vm.compile(double, dynamic={"x": {0: "n"}}, memory_budget="1GiB")
    expected = (
        r"\[vm\] memory_budget is set for a program with branches, loops, calls of functions or symbolic sizes; "
        r"expected a straight-line program of known sizes; compile it without memory_budget, or for fixed sizes"
    )
    with pytest.raises(NotSupportedError, match=expected):
        executor(meta.ones((3, 4)))


@pytest.mark.parametrize(
    ("text", "count"), [("2GiB", 2 << 30), ("1.5 KiB", 1536), ("500MB", 500_000_000), ("7 B", 7), (12, 12)]
)
def test_numbers_of_bytes(text: str | int, count: int) -> None:
    assert parse_bytes(text, "memory_budget") == count


@pytest.mark.parametrize("value", ["2 elephants", "GiB", 0, -1, True, 1.5, "0GiB"])
def test_other_numbers_of_bytes_are_refused(value: Any) -> None:
    expected = (
        rf"\[vm\] memory_budget is {re.escape(repr(value))}; expected a positive number of bytes, or a text with a "
        r'unit \(B, KB, MB, GB, TB, KiB, MiB, GiB, TiB\); for instance memory_budget="2GiB"'
    )
    with pytest.raises(ArgumentError, match=expected):
        meta.vm.compile(meta.trace(lambda x: x), memory_budget=value)
