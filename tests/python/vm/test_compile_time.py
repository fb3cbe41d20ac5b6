"""Programs that use values several times have kernels whose size is linear in their operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta
from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from scripts.fuzz_chains import CHAINS, JOINS, example, mixed, of_links, of_list, random_chain

LINKS = 8
RANDOM = [f"random {seed}" for seed in range(3)]
Program = Callable[..., Any]


def chain_of(name: str, links: int) -> Program:
    return of_links(CHAINS[name] if name in CHAINS else random_chain(int(name.split()[1])), links)


def planned(program: Program, *args: Any) -> Any:
    """The scheduled program, after its results were compared with eager ones."""
    executor = meta.vm.compile(meta.trace(program))
    np.testing.assert_allclose(executor(*args).numpy(), program(*args).numpy(), rtol=1e-3, atol=1e-5)
    return executor.relax(*args, stage="planned")


def kernels(module: Any) -> list[Any]:
    return [f for f in module.functions.values() if isinstance(f, tvm.PrimFunc)]


def size(module: Any) -> int:
    """The loads, stores and calls in all kernels, each as often as it is written."""
    nodes: list[Any] = []
    for kernel in kernels(module):
        tvm.structural_walk(kernel.body, ((tvm.TensorLoad, tvm.BufferStore, tvm.Call), nodes.append))
    return len(nodes)


@pytest.mark.parametrize("name", [*CHAINS, *RANDOM])
def test_kernels_are_linear_in_the_links(name: str) -> None:
    once, twice = (size(planned(chain_of(name, n), example())) for n in (LINKS, 2 * LINKS))
    assert twice <= 2.2 * once + 40


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32"])
def test_values_are_shared_in_every_dtype(dtype: str) -> None:
    x = meta.array(np.arange(-72, 72) % 3, dtype=dtype)

    def program(x: Any) -> Any:
        for _ in range(LINKS):
            x = x * x - x
        return x

    executor = meta.vm.compile(meta.trace(program))
    result = meta.cast(executor(x), "float32").numpy()
    np.testing.assert_array_equal(result, meta.cast(program(x), "float32").numpy())
    assert size(executor.relax(x, stage="planned")) <= 10 * LINKS


@pytest.mark.parametrize("name", CHAINS)
def test_chains_of_bfloat16_compile(name: str) -> None:
    """Values of variables that choose between loads, such as a clipped concatenation, are cast where they are bound."""

    def program(x: Any) -> Any:
        return meta.clip(CHAINS[name](meta.clip(x, -1.0, 1.0), 2), -1.0, 1.0)

    x = meta.cast(example(), "bfloat16")
    result, expected = (meta.cast(run(x), "float32").numpy() for run in (meta.vm.compile(meta.trace(program)), program))
    np.testing.assert_allclose(result, expected, atol=0.05)


def tanh_gelu(x: Any) -> Any:
    return 0.5 * x * (1.0 + meta.tanh(0.79 * (x + 0.0447 * x * x * x)))


@pytest.mark.parametrize("name", ["x * sigmoid(x)", "gelu", "x * x + x", "rope"])
def test_one_kernel_computes_a_link(name: str) -> None:
    check_one_kernel(chain_of(name, 1))


def test_one_kernel_computes_a_short_chain() -> None:
    check_one_kernel(chain_of("x * sigmoid(x)", 4))
    check_one_kernel(tanh_gelu)


def check_one_kernel(program: Program) -> None:
    (kernel,) = kernels(planned(program, example()))
    assert not len(kernel.body.block.alloc_buffers)


@pytest.mark.parametrize(("operators", "reuse"), [(2000, False), (4000, True)])
def test_long_programs_repeat_their_kernels(operators: int, reuse: bool) -> None:
    """More than 1000 of their operators would otherwise be in different kernels."""
    module = meta.vm.compile(meta.trace(mixed(operators, reuse=reuse))).relax(example(), stage="planned")
    assert size(module) < 1000


@pytest.mark.parametrize(("side", "is_cut"), [(12, True), (256, False)])
def test_only_groups_over_small_tensors_are_cut(side: int, is_cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: Any) -> Any:
        for _ in range(8):
            x = meta.tanh(x * 0.9)
        return x

    x = meta.array(np.random.default_rng(0).uniform(-1, 1, (side, side)).astype(np.float32))
    (whole,) = kernels(planned(program, x))
    assert str(whole).count("meta.tanh") == 8
    monkeypatch.setattr(limits, "DISTINCT_OPERATORS", 10)
    pieces = kernels(planned(program, x))
    assert {str(piece).count("meta.tanh") for piece in pieces} == {2 if is_cut else 8}


def test_a_shared_value_is_computed_once() -> None:
    module = planned(chain_of("x * sigmoid(x)", LINKS), example())
    calls: list[str] = []

    def visit(call: Any) -> None:
        calls.append(str(getattr(call.op, "name", "")))

    for kernel in kernels(module):
        tvm.structural_walk(kernel.body, (tvm.Call, visit))
    assert calls.count("meta.sigmoid") == LINKS


@pytest.mark.parametrize("name", JOINS)
@pytest.mark.parametrize("count", [15, 40])
def test_long_lists_are_joined(name: str, count: int) -> None:
    rng = np.random.default_rng(0)
    hosts = [rng.uniform(size=(3, 4)).astype(np.float32) for _ in range(count)]
    expected = {"concatenate": np.concatenate(hosts), "stack": np.stack(hosts, 1), "sum": np.sum(hosts, 0)}[name]
    arrays = [meta.array(x) for x in hosts]
    with meta.with_dialect(["tvm"]):
        join = JOINS[name]
        compiled = meta.vm.compile(meta.trace(of_list(join)))
        for result in (join(arrays), compiled(*arrays)):
            np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5)


def test_lists_of_uneven_arrays_are_joined() -> None:
    hosts = [np.full((i % 4, 2), i, np.float32) for i in range(37)]
    with meta.with_dialect(["tvm"]):
        joined = meta.concatenate([meta.array(x) for x in hosts], axis=0)
    np.testing.assert_array_equal(joined.numpy(), np.concatenate(hosts))


def test_chains_after_a_product_are_linear() -> None:
    def program(links: int) -> Program:
        def run(x: Any) -> Any:
            return CHAINS["x * sigmoid(x)"](meta.matmul(x, x) * 0.1, links)

        return run

    with meta.with_dialect(["tvm"]):
        once, twice = (size(planned(program(n), example())) for n in (LINKS, 2 * LINKS))
    assert twice <= 2.2 * once + 40


def test_numbers_are_computed_without_buffers() -> None:
    """The steps of an optimizer are chains of 0-d tensors, whose blocks have an axis that no index names."""
    with meta.with_dialect(["tvm"]):
        module = planned(lambda x: meta.sqrt(1.0 - meta.power(x, 3.0)) * x, meta.array(0.5))
    assert not any("alloc_buffer" in str(kernel) for kernel in kernels(module))
