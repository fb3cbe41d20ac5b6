"""Checks of collectives against torch.distributed's own, and against NumPy on all ranks' tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import meta
from meta import distributed
from meta.distributed import mesh
from meta.errors import CommunicationError

RANK, RANKS = distributed.rank(), distributed.world_size()
DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
    "complex128", "uint16", "uint32", "uint64",
)  # fmt: skip
COMPLEX = ("complex64", "complex128")
SHAPES = ((), (RANKS,), (2 * RANKS, 3), (RANKS, 0))


def _tensor(rank: int, shape: tuple[int, ...], dtype: str) -> Any:
    values = np.random.default_rng(rank).integers(0, 5, shape)
    return meta.array(np.asarray(values, "int64")).cast(dtype)


def _all(shape: tuple[int, ...], dtype: str) -> list[Any]:
    return [_wide(_tensor(rank, shape, dtype)) for rank in range(RANKS)]


def _wide(x: Any) -> Any:
    return (x.cast("float32") if x.dtype == "bfloat16" else x).numpy()


def _equal(result: Any, expected: Any, what: Any) -> None:
    np.testing.assert_array_equal(_wide(result), expected, err_msg=str(what))


def check_reductions_of_all_dtypes() -> None:
    functions: dict[str, Callable[..., Any]] = {
        "sum": np.add, "max": np.maximum, "min": np.minimum, "product": np.multiply,
    }  # fmt: skip
    for dtype in DTYPES:
        for shape in SHAPES:
            for name, function in functions.items():
                if name in {"bool": ("sum", "product"), **dict.fromkeys(COMPLEX, ("max", "min"))}.get(dtype, ()):
                    continue
                x = _tensor(RANK, shape, dtype)
                expected = function.reduce(_all(shape, dtype)).astype(_wide(x).dtype)
                _equal(distributed.all_reduce(x, name), expected, (dtype, shape, name))
    tolerances = {
        "float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-6, "float64": 1e-12, "complex64": 1e-6, "complex128": 1e-12,
    }  # fmt: skip
    for dtype, tolerance in tolerances.items():
        x, expected = _tensor(RANK, (2 * RANKS, 3), dtype), np.mean(_all((2 * RANKS, 3), dtype), 0)
        for result, part in (
            (distributed.all_reduce(x, "mean"), expected),
            (distributed.reduce_scatter(x, 0, "mean"), np.split(expected, RANKS)[RANK]),
            (distributed.reduce(x, 1, "mean"), expected if RANK == 1 else 0 * expected),
        ):
            np.testing.assert_allclose(_wide(result), part, tolerance, err_msg=dtype)


def check_data_movement_of_all_dtypes() -> None:
    for dtype in DTYPES:
        for shape in SHAPES:
            x, every = _tensor(RANK, shape, dtype), _all(shape, dtype)
            _equal(distributed.broadcast(x, RANKS - 1), every[-1], (dtype, shape))
            ring = [(i, (i + 1) % RANKS) for i in range(RANKS)]
            _equal(distributed.permute(x, ring), every[RANK - 1], (dtype, shape))
            _equal(distributed.permute(x, ring[:1]), every[0] if RANK == 1 else 0 * every[0], (dtype, shape))
            if not shape:
                continue
            _equal(distributed.all_gather(x), np.concatenate(every, 0), (dtype, shape))
            _equal(distributed.all_gather(x, -1), np.concatenate(every, -1), (dtype, shape))
            parts = [np.split(e, RANKS, 0)[RANK] for e in every]
            _equal(distributed.all_to_all(x), np.concatenate(parts, 0), (dtype, shape))
            _equal(distributed.all_to_all(x, 0, -1), np.concatenate(parts, -1), (dtype, shape))
            if dtype != "bool":
                total = np.add.reduce(every).astype(every[0].dtype)
                _equal(distributed.reduce_scatter(x), np.split(total, RANKS, 0)[RANK], (dtype, shape))
                _equal(distributed.reduce(x, 1), total if RANK == 1 else 0 * total, (dtype, shape))


def _by_torch(x: Any) -> dict[str, Callable[[], Any]]:
    """torch.distributed's collectives of a contiguous tensor; all but the reductions need an axis."""
    import torch
    import torch.distributed as dist

    def in_place(function: Callable[..., Any], *args: Any) -> Callable[[], Any]:
        def run() -> Any:
            y = x.clone()
            function(y, *args)
            return y

        return run

    def into(function: Callable[..., Any], *shape: int) -> Callable[[], Any]:
        def run() -> Any:
            y = x.new_empty(shape)
            function(y, x)
            return y

        return run

    def ring() -> Any:
        y = torch.empty_like(x)
        sent = dist.P2POp(dist.isend, x, (RANK + 1) % RANKS), dist.P2POp(dist.irecv, y, (RANK - 1) % RANKS)
        for work in dist.batch_isend_irecv(list(sent)):
            work.wait()
        return y

    rows, *rest = x.shape
    operations = dist.ReduceOp
    return {
        "sum": in_place(dist.all_reduce, operations.SUM), "max": in_place(dist.all_reduce, operations.MAX),
        "min": in_place(dist.all_reduce, operations.MIN), "product": in_place(dist.all_reduce, operations.PRODUCT),
        "gather": into(dist.all_gather_single, RANKS * rows, *rest),
        "scatter": into(dist.reduce_scatter_single, rows // RANKS, *rest),
        "broadcast": in_place(dist.broadcast, 1), "reduce": in_place(dist.reduce, 1),
        "all_to_all": into(dist.all_to_all_single, rows, *rest), "permute": ring,
    }  # fmt: skip


OURS: dict[str, Callable[[Any], Any]] = {
    **{name: partial(distributed.all_reduce, reduction=name) for name in ("sum", "max", "min", "product")},
    "gather": distributed.all_gather, "scatter": distributed.reduce_scatter,
    "broadcast": partial(distributed.broadcast, source=1), "reduce": partial(distributed.reduce, destination=1),
    "all_to_all": distributed.all_to_all, "permute": lambda x: distributed.permute(x, RING),
}  # fmt: skip
RING = [(i, (i + 1) % RANKS) for i in range(RANKS)]
NOT_IN_GLOO = ("int16", "uint16", "uint32", "uint64")
"""Dtypes that torch refuses on the CPU; they are compared with NumPy."""
NOT_IN_TORCH = {
    # Sums of truth values, which meta has no reduction for, and products and extrema of complex numbers.
    "bool": ("sum", "product", "scatter", "reduce"), **dict.fromkeys(COMPLEX, ("max", "min", "product")),
}  # fmt: skip


def check_results_are_those_of_torch() -> None:
    """The results for contiguous, transposed, cut and empty tensors."""
    import torch

    base = torch.arange(12 * RANKS).reshape(2 * RANKS, 6) % 7 + RANK
    for dtype in (d for d in DTYPES if d not in NOT_IN_GLOO):
        x = base.to(getattr(torch, dtype))
        for case in (x, x.reshape(6, -1).T, x[:, 1::2], x[:, :0]):
            for name, by_torch in _by_torch(case.contiguous()).items():
                if name in NOT_IN_TORCH.get(dtype, ()):
                    continue
                desired, result = by_torch(), torch.from_dlpack(OURS[name](meta.from_dlpack(case)))
                if name != "reduce" or RANK == 1:  # torch leaves the others' tensors undefined
                    assert torch.equal(result, desired), (dtype, name, case.shape, case.stride())


def check_large_unsigned_integers() -> None:
    for dtype in ("uint16", "uint32", "uint64"):
        highest = np.iinfo(dtype).max
        every = [np.array([highest // 2 + rank, highest - rank, rank], dtype) for rank in range(RANKS)]
        x = meta.array(every[RANK])
        for name, function in (("sum", np.add), ("max", np.maximum), ("min", np.minimum)):
            _equal(distributed.all_reduce(x, name), function.reduce(every).astype(dtype), (dtype, name))  # type: ignore[arg-type]
        _equal(distributed.all_gather(x), np.concatenate(every), dtype)


def check_operands_that_are_not_contiguous() -> None:
    import torch

    x = meta.from_dlpack(torch.arange(4.0 * RANKS).reshape(2 * RANKS, 2).T + RANK)
    every = [np.arange(4.0 * RANKS, dtype="float32").reshape(2 * RANKS, 2).T + rank for rank in range(RANKS)]
    _equal(distributed.all_reduce(x), np.add.reduce(every), "all_reduce")
    _equal(distributed.all_gather(x, 1), np.concatenate(every, 1), "all_gather")
    _equal(distributed.reduce_scatter(x, 1), np.split(np.add.reduce(every), RANKS, 1)[RANK], "reduce_scatter")
    for name, function in (("mean", np.mean), ("max", np.max), ("min", np.min), ("product", np.prod)):
        _equal(distributed.all_reduce(x, name), function(every, 0), name)  # type: ignore[arg-type]
    _equal(distributed.broadcast(x, 1), every[1], "broadcast")
    _equal(distributed.reduce(x, 1), np.add.reduce(every) if RANK == 1 else 0 * every[0], "reduce")
    parts = [np.split(e, RANKS, 1)[RANK] for e in every]
    _equal(distributed.all_to_all(x, 1, 0), np.concatenate(parts, 0), "all_to_all")
    ring = [(i, (i + 1) % RANKS) for i in range(RANKS)]
    _equal(distributed.permute(x, ring), every[RANK - 1], "permute")
    _equal(distributed.barrier(x), every[RANK], "barrier")


_DIFFERENTIABLE: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: distributed.all_reduce(x),
    "mean": lambda x: distributed.all_reduce(x, "mean"),
    "max": lambda x: distributed.all_reduce(x, "max"),
    "min": lambda x: distributed.all_reduce(x, "min"),
    "product": lambda x: distributed.all_reduce(x, "product"),
    "when": lambda x: meta.all_reduce_when(x, meta.array(True), "mean", "world", RANKS),
    "when not": lambda x: meta.all_reduce_when(x, meta.array(False), "sum", "world", RANKS),
    "barrier": lambda x: distributed.barrier(x),
    "gather": lambda x: distributed.all_gather(x, 1),
    "scatter": lambda x: distributed.reduce_scatter(x, 0, "mean"),
    "broadcast": lambda x: distributed.broadcast(x, 1),
    "reduce": lambda x: distributed.reduce(x, 1),
    "all_to_all": lambda x: distributed.all_to_all(x, 0, 1),
    "permute": lambda x: distributed.permute(x, [(0, 1), (1, 0)]),
}


def _loss(function: Callable[[Any], Any], x: Any) -> Any:
    """A loss whose gradient depends on x and on the rank."""
    y = function(meta.sin(x) * (RANK + 1.0))
    return (y * y * y).sum()


def check_gradients_to_second_order() -> None:
    """Against finite differences of the sum of all ranks' losses."""
    values = np.random.default_rng(RANK).uniform(0.2, 1.2, (RANKS, 2))
    pairs: list[tuple[str, float, float]] = []
    for name, function in _DIFFERENTIABLE.items():
        x = meta.array(values)
        x.requires_grad = True
        _loss(function, x).backward(create_graph=True)
        assert x.grad is not None
        first, weights = x.grad, np.random.default_rng(RANKS + RANK).uniform(-1, 1, values.shape)
        (second,) = meta.autograd.grad((first * meta.array(weights)).sum(), [x])
        for index in (0, 0), (RANKS - 1, 1):
            for owner in range(RANKS):
                losses, products = [], []
                for sign in (1, -1):
                    moved = values.copy()
                    moved[index] += sign * 1e-5 * (owner == RANK)
                    z = meta.array(moved)
                    z.requires_grad = True
                    loss = _loss(function, z)
                    losses.append(distributed.all_reduce(loss.detach()).item())
                    loss.backward()
                    product = (z.grad * meta.array(weights)).sum()
                    products.append(distributed.all_reduce(product).item())
                if owner == RANK:
                    pairs.append((name, first.detach().numpy()[index], (losses[0] - losses[1]) / 2e-5))
                    pairs.append((name, second.numpy()[index], (products[0] - products[1]) / 2e-5))
    # Compared at the end: a rank that stops in between would leave the others waiting.
    for name, gradient, expected in pairs:
        np.testing.assert_allclose(gradient, expected, 1e-5, 1e-6, err_msg=name)


def check_programs_communicate() -> None:
    def step(x: Any) -> Any:
        y = distributed.all_reduce(meta.exp(x), "mean")
        return y + meta.group_rank("world", RANKS), distributed.all_gather(y[:1])

    x = _tensor(RANK, (3,), "float64")
    results = meta.vm.compile(meta.trace(step), device="cpu")(x)
    for result, expected in zip(results, step(x), strict=True):
        np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-12)


def check_programs_call_every_collective() -> None:
    """In two dtypes, on tensors that the program computes."""
    ring = [(i, (i + 1) % RANKS) for i in range(RANKS)]

    def calls(x: Any) -> tuple[Any, ...]:
        x = x + x
        reductions = ("sum", "mean", "max", "min", "product")
        return (
            *(distributed.all_reduce(x, name) for name in reductions), distributed.all_gather(x, 1),
            distributed.reduce_scatter(x), distributed.broadcast(x, 1), distributed.reduce(x, 1),
            distributed.all_to_all(x, 0, 1), distributed.permute(x, ring), distributed.barrier(x),
        )  # fmt: skip

    for dtype in "float64", "bfloat16":
        x = _tensor(RANK, (RANKS, 3), dtype)
        for result, expected in zip(meta.vm.compile(meta.trace(calls), device="cpu")(x), calls(x), strict=True):
            assert result.dtype == dtype
            _equal(result, _wide(expected), dtype)


def check_conditions_of_reductions() -> None:
    """In every dtype, eagerly and in one program for both."""
    group = mesh.as_group("test", None)
    for dtype in DTYPES[1:]:
        x = _tensor(RANK, (2, 3), dtype)
        total = np.add.reduce(_all((2, 3), dtype)).astype(_wide(x).dtype)
        for when, expected in ((True, total), (False, _wide(x))):
            _equal(meta.all_reduce_when(x, meta.array(when), "sum", *group), expected, (dtype, when))
    run = meta.vm.compile(meta.trace(lambda x, when: meta.all_reduce_when(x + x, when, "mean", *group)), device="cpu")
    x, every = _tensor(RANK, (3,), "float64"), _all((3,), "float64")
    for when in (True, False, True):
        np.testing.assert_allclose(run(x, meta.array(when)).numpy(), 2 * (np.mean(every, 0) if when else every[RANK]))


def check_autocast_keeps_the_dtype_of_what_is_sent() -> None:
    x = _tensor(RANK, (2, 2), "float32")
    with meta.amp.autocast("bfloat16"):
        assert distributed.all_reduce(x).dtype == "float32"
        assert distributed.all_gather(meta.matmul(x, x)).dtype == "bfloat16"


def check_seeds_differ_by_rank() -> None:
    for same, streams in ((None, RANKS), (mesh.as_group("test", None), 1)):
        distributed.seed(3, same)
        rows = distributed.all_gather(meta.random.uniform((1, 4))).tolist()
        assert len(set(map(tuple, rows))) == streams


def check_meshes() -> None:
    grid = distributed.DeviceMesh({"rows": 2, "columns": -1}, device="cpu")
    assert grid.sizes == {"rows": 2, "columns": RANKS // 2}
    assert grid.rank("rows") * (RANKS // 2) + grid.rank("columns") == RANK
    x = meta.array([float(RANK)])
    column = [r for r in range(RANKS) if r % (RANKS // 2) == RANK % (RANKS // 2)]
    row = [r for r in range(RANKS) if r // (RANKS // 2) == RANK // (RANKS // 2)]
    assert distributed.all_gather(x, 0, grid["rows"]).tolist() == column
    assert distributed.all_gather(x, 0, "columns").tolist() == row
    assert mesh.as_group("test", grid["rows"]).ranks == 2


def check_unknown_groups_are_refused() -> None:
    with pytest.raises(CommunicationError, match=r"this process is in no group 'absent'; expected one of 'world'"):
        distributed.all_reduce(meta.ones(2), "sum", "absent")
    with pytest.raises(CommunicationError, match=rf"group 'world' has {RANKS} ranks, the call was made for 17"):
        meta.all_reduce(meta.ones(2), "sum", "world", 17)


def check_unequal_calls_are_refused() -> None:
    """Before anything is sent, so that the group goes on."""
    x, other = meta.ones((2 * RANKS, 5)), RANK == RANKS - 1  # no other check has calls with this shape
    cases: dict[str, Callable[[], Any]] = {
        r"float32\[2, 5\], sum.*float32\[3, 5\]": lambda: distributed.all_reduce(x[: 2 + other]),
        r"float32\[0, 5\], sum.*float32\[\d": lambda: distributed.all_reduce(x[: 2 * RANKS * other]),
        r"float32.*float64": lambda: distributed.all_reduce(x.cast("float64") if other else x),
        r", min\).*, max\)": lambda: distributed.all_reduce(x, "max" if other else "min"),
        r", 0\).*, 1\)": lambda: distributed.broadcast(x, RANK),
        r"reduce_scatter.*all_gather": lambda: (distributed.all_gather if other else distributed.reduce_scatter)(x),
    }
    for text, call in cases.items():
        on_ranks = text.replace(".*", ".* on rank 0, and .*")
        with pytest.raises(CommunicationError, match=f"the call is .*{on_ranks}.*; expected the same on all ranks"):
            call()
    _equal(distributed.all_reduce(x), RANKS * np.ones((2 * RANKS, 5)), "afterwards")
