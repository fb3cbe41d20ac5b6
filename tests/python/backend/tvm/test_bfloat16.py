"""Values of bfloat16 that TVM's legalisation skips or rounds wrongly: in bindings, vectors of copies, and NaNs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import target as targets
from meta.backend.tvm.workarounds.bfloat16 import bits_of_bfloat16

DEPTH = 5


def function_of_loads(make_value: Any, target: Any) -> Any:
    """A function that stores `make_value(load)` of a bfloat16."""
    tirx = tvm.tirx
    source, out = (tirx.decl_buffer((1,), dtype, name) for dtype, name in (("bfloat16", "source"), ("float32", "out")))
    store = tvm.BufferStore(out, make_value(tirx.BufferLoad(source, [0])), [0])
    return tvm.PrimFunc([source, out], store).with_attr("target", target)


def count(func: Any) -> tuple[int, int]:
    """The bindings and the loads of a function."""
    bindings: list[Any] = []
    loads: list[Any] = []
    tvm.structural_walk(func, [(tvm.tirx.Let, bindings.append), (tvm.TensorLoad, loads.append)])
    return len(bindings), len(loads)


def nested(load: Any) -> Any:
    value = load.astype("float32")
    for depth in range(DEPTH):
        var = tvm.tirx.Var(f"v{depth}", "float32")
        value = tvm.tirx.Let(var, value, var * var + var)
    return value


def test_values_stay_bound_on_the_cpu() -> None:
    """Computed anew, a kernel would double with each binding around another."""
    tvm.load()
    assert count(bits_of_bfloat16(function_of_loads(nested, targets.target("cpu")))) == (DEPTH, 1)


@pytest.mark.parametrize(("arch", "has_dtype"), [("sm_75", False), ("sm_80", True), ("sm_90a", True), ("sm_120", True)])
def test_values_are_repeated_on_gpus_without_the_dtype(arch: str, has_dtype: bool) -> None:
    tvm.load()
    gpu = tvm.Target({"kind": "cuda", "arch": arch}, host=targets.target("cpu"))
    bindings, loads = count(bits_of_bfloat16(function_of_loads(nested, gpu)))
    assert (bindings, loads) == (DEPTH, 1) if has_dtype else bindings == 0 and loads > DEPTH


def test_values_of_dtype_bfloat16_become_float32() -> None:
    tvm.load()

    def bound(load: Any) -> Any:
        var = tvm.tirx.Var("v", "bfloat16")
        return tvm.tirx.Let(var, load, var.astype("float32") + var.astype("float32"))

    func = bits_of_bfloat16(function_of_loads(bound, targets.target("cpu")))
    variables: list[str] = []
    tvm.structural_walk(func, (tvm.tirx.Let, lambda let: variables.append(str(let.var.ty))))
    assert variables == ["float32"]


def test_copies_of_computed_values() -> None:
    """One row of results is a vector of copies of a sum, beside a row of other results."""

    def of_row(column: Any, rows: Any) -> Any:
        return meta.broadcast_to(meta.exp(column) * column, rows.shape), rows + column

    column, rows = (meta.cast(meta.array(np.linspace(-2, 2, n, dtype="float32")), "bfloat16") for n in (40, 40 * 64))
    column, rows = meta.reshape(column, (40, 1)), meta.reshape(rows, (40, 64))
    for result, expected in zip(meta.vm.compile(of_row)(column, rows), of_row(column, rows), strict=True):
        np.testing.assert_array_equal(result.numpy(), expected.numpy())


@pytest.mark.parametrize("shape", [(3, 1), (1,), (2, 1, 1), (2, 3, 1), (3, 8)])
def test_copies_of_operands(shape: tuple[int, ...]) -> None:
    """An operand of which each vector has one element, whose index depends on the lane until it is simplified."""
    x = meta.cast(meta.reshape(meta.arange(int(np.prod(shape)), dtype="float32"), shape), "bfloat16")
    for function in (
        lambda x: meta.broadcast_to(x, (2, 3, 8)), lambda x: meta.broadcast_to_like(x, meta.ones((2, 3, 8), "int32")),
        lambda x: meta.tile(x, (2, 8)),
    ):  # fmt: skip
        result, expected = meta.vm.compile(meta.trace(function))(x), function(x)
        np.testing.assert_array_equal(result.numpy(), expected.numpy())


def test_blocks_without_a_new_extremum() -> None:
    """Such a block of a row is a vector of copies of the extremum before it."""
    numbers = np.concatenate([np.arange(16), np.zeros(20), np.full(3, 20.0)]).astype("float32")
    values, positions = meta.cummax(meta.cast(meta.array(numbers), "bfloat16"), 0)
    np.testing.assert_array_equal(values.numpy().astype("float32"), np.maximum.accumulate(numbers))
    assert positions.numpy()[-4:].tolist() == [15, 36, 37, 38]


def cast_bits(bits: list[int]) -> list[float]:
    x = meta.array(np.array(bits, "uint32").view("float32"))
    return meta.cast(meta.cast(x, "bfloat16"), "float32").numpy().tolist()


def test_every_nan_stays_one() -> None:
    assert np.isnan(cast_bits([0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFF80FFFF])).all()


def test_halves_round_to_even() -> None:
    bits = [0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x00008000, 0x80018000]
    rounded = torch.tensor(np.array(bits, "uint32").view("float32")).to(torch.bfloat16)
    assert cast_bits(bits) == rounded.tolist()


CHAINS = [
    ["lgamma"], ["erfinv", "hardshrink", "lgamma"], ["hardswish", "lgamma", "selu"], ["erfinv"] * 3,
    ["erfinv", "negative", "signbit"], ["i0", "softmax", "erfinv"],
]  # fmt: skip


@pytest.mark.parametrize(("names", "size"), [(["erfinv"], n) for n in (7, 64, 200)] + [(c, 64) for c in CHAINS])
def test_functions_with_bindings_compile(names: list[str], size: int) -> None:
    """Alone, in chains, with intermediate results of the kernel, as vectors and not."""

    def chain(x: Any) -> Any:
        for name in names:
            x = getattr(meta, name)(x)
        return x

    x = meta.array(np.linspace(-0.9, 0.9, size), dtype="bfloat16")
    result, expected = (y.numpy().astype("float32") for y in (meta.vm.compile(meta.trace(chain))(x), chain(x)))
    np.testing.assert_array_equal(result, expected)


def test_choices_keep_nans_and_zeros() -> None:
    """Bits of what bfloat16 holds are stored without rounding."""
    x = meta.array([np.nan, -0.0, 0.0, np.inf, -np.inf, 1.5, -3e38], dtype="bfloat16")
    wide = meta.cast(x, "float32")
    results = meta.relu(x), meta.maximum(x, -x), meta.where(x > 0, x, 0.5)
    expected = meta.relu(wide), meta.maximum(wide, -wide), meta.where(wide > 0, wide, 0.5)
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_array_equal(meta.cast(ours, "float32").numpy(), theirs.numpy())
