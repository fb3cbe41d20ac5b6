"""Open sizes: indices, numbers computed of sizes, and the checks of eager calls, in one program for all sizes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta.autograd import vjp
from meta.errors import (
    ArgumentError,
    MetaError,
    NotSupportedError,
    SymbolicSizeError,
    TypeInferenceError,
)

Function = Callable[[Any], Any]


def _rows(count: int) -> Any:
    return meta.array(np.random.default_rng(0).uniform(0.1, 1, (count, 4)).astype("float32"))


def _agrees(functions: dict[str, Function], counts: tuple[int, ...]) -> None:
    """One program of all functions, for inputs of several numbers of rows."""
    executor = meta.vm.compile(lambda x: [f(x) for f in functions.values()], dynamic={"x": {0: "n"}})
    for count in counts:
        x = _rows(count)
        for name, ours, function in zip(functions, executor(x), functions.values(), strict=True):
            expected = function(x)
            assert ours.type == expected.type, (name, count)
            np.testing.assert_allclose(ours.numpy(), expected.numpy(), 1e-5, 1e-6, err_msg=f"{name} of {count}")


SLICES: dict[str, Any] = {
    str(index): index
    for index in [
        slice(1, None),
        slice(-2, None),
        slice(None, -1),
        slice(None, 3),
        slice(1, 3),
        slice(None, None, 2),
        slice(1, None, 2),
        slice(None, None, -1),
        slice(-3, -1),
        slice(1, -1),
        slice(None, None, -2),
        slice(-1, None, -1),
        slice(5, 2),
        slice(2, -3, 2),
        slice(-2, 1, -1),
        slice(9, None, -3),
        slice(-9, 9),
    ]
}


def test_slices() -> None:
    _agrees({name: lambda x, i=index: x[i] for name, index in SLICES.items()}, (6, 3, 2, 1, 0))


def test_modes_and_diagonals() -> None:
    functions: dict[str, Function] = {
        "mode": lambda x: meta.mode(meta.round(3 * x), 0)[0],
        "place of the mode": lambda x: meta.mode(meta.round(3 * x), 0, True)[1],
        **{f"diagonal {k}": lambda x, k=k: meta.diagonal(x, k) for k in (-3, -1, 0, 1, 5)},
        "diagonal of the transpose": lambda x: meta.diagonal(x, 1, 1, 0),
        **{f"diag {k}": lambda x, k=k: meta.diag(x[:, 0], k) for k in (-2, 0, 1)},
        "diag_embed": lambda x: meta.diag_embed(x.T, 1, 0, 2),
        "gradient": lambda x: vjp(lambda y: (meta.diagonal(y, 1) ** 2).sum() + meta.diag(y[:, 0]).sum(), x)[1](
            meta.ones(())
        )[0],
    }
    _agrees(functions, (6, 3, 2, 1))


def test_bounds_that_are_sizes() -> None:
    n = operator.itemgetter(0)
    _agrees(
        {
            "second half": lambda x: x[n(x.shape) // 2 :],
            "first half": lambda x: x[: n(x.shape) // 2],
            "from the end": lambda x: x[n(x.shape) - 2 :],
            "past the end": lambda x: x[1 : n(x.shape) + 3],
            "backwards": lambda x: x[n(x.shape) - 1 :: -1],
            "every second": lambda x: x[: n(x.shape) - 1 : 2],
            "neighbours": lambda x: x[1:] - x[:-1],
            "pairs": lambda x: x[: n(x.shape) // 2 * 2].reshape((n(x.shape) // 2, 2, 4)),
        },
        (6, 3, 2, 1, 0),
    )


def test_positions() -> None:
    functions: dict[str, Function] = {
        "first": lambda x: x[0],
        "last": lambda x: x[-1],
        "second": lambda x: x[1],
        "of a column": lambda x: x[-2, 1],
        "size - 1": lambda x: x[x.shape[0] - 1],
        "middle": lambda x: x[x.shape[0] // 2, None],
        "last as a slice": lambda x: x.T[:, -1:],
        "last column": lambda x: x.T[:, -1],
    }
    _agrees(functions, (6, 3, 2))
    executor = meta.vm.compile(lambda x: x[5] * 2.0, dynamic={"x": {0: "n"}})
    executor(_rows(6))
    with pytest.raises(MetaError, match="with n = 3"):
        executor(_rows(3))


def test_writes_and_gradients_of_slices() -> None:
    def step(x: Any) -> Any:
        y = x * 2.0
        y[1:] = 7.0
        y[:, -1] = x[:, 0]
        w = x * 1.0
        w.requires_grad = True
        ((w[1:] * w[:-1]).sum() + (w[::-1] * w * w).sum() + w[-1].sum()).backward()
        return y, w.grad

    executor = meta.vm.compile(step, dynamic={"x": {0: "n"}})
    for count in (5, 1):
        for ours, expected in zip(executor(_rows(count)), step(_rows(count)), strict=True):
            np.testing.assert_allclose(ours.numpy(), expected.numpy(), 1e-5, 1e-6)


NUMBERS: dict[str, Callable[[Any], Any]] = {
    "%": lambda n: n % 2,
    "divmod": lambda n: divmod(n, 2)[1],
    "7 % n": lambda n: 7 % n,
    "divmod of": lambda n: divmod(7, n)[0],
    "root": lambda n: n**0.5,
    "inverse root": lambda n: n**-0.5,
    "square": lambda n: n**2,
    "power": lambda n: 2**n,
    "** 0": lambda n: n**0,
    "inverse": lambda n: 1 / n,
    "half": lambda n: n / 2,
    "round": round,
    "abs": abs,
    "distance": lambda n: abs(n - 3),
    "sum": lambda n: n + 0.5,
    "difference": lambda n: 0.5 - n,
    "product": lambda n: 1.5 * n,
    "nested": lambda n: (n - 1) / (n + 1.5) * -2,
    "floor": lambda n: math.floor(n / 2),
    "ceil": lambda n: math.ceil(n / 2),
    "// 2.0": lambda n: n // 2.0,
    "% 1.5": lambda n: n % 1.5,
    ">>": lambda n: n >> 1,
    "<<": lambda n: n << 1,
    "&": lambda n: n & 3,
    "~": operator.invert,
    "trunc": math.trunc,
    "-(-n // 2)": lambda n: -(-n // 2),
    "+": operator.pos,
    "pow": lambda n: pow(n, 2, 5),
    "minimum": lambda n: meta.dim.minimum(n, 4),
    "maximum": lambda n: meta.dim.maximum(n, 4),
}


def test_numbers_computed_of_sizes() -> None:
    of_ints = {
        f"{name} and ints": lambda x, f=NUMBERS[name]: x.cast("int32") * f(x.shape[0])
        for name in ("%", "power", "half")
    }
    _agrees(of_ints | {name: lambda x, f=f: x * f(x.shape[0]) for name, f in NUMBERS.items()}, (6, 3, 1))


CREATED: dict[str, Function] = {
    "linspace": lambda x: meta.linspace(0, 1, x.shape[0]),
    "logspace": lambda x: meta.logspace(0, 1, x.shape[0]),
    "arange": lambda x: meta.arange(x.shape[0]),
    "step": lambda x: meta.arange(1, x.shape[0], 2),
    "down": lambda x: meta.arange(x.shape[0] - 1, -1, -1),
    "from": lambda x: meta.arange(x.shape[0], 10),
    "floats": lambda x: meta.arange(x.shape[0], dtype="float32"),
    "eye": lambda x: meta.eye(x.shape[0], 3),
    "unfold": lambda x: meta.unfold(x, 0, 2, 1),
    "kthvalue": lambda x: meta.kthvalue(x, 2, 0)[0],
    "median": lambda x: meta.median(x, 0)[0],
    "narrow": lambda x: meta.narrow(x, 0, 1, 2),
}


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_an_open_number(mode: str) -> None:
    weight = meta.array(np.random.default_rng(0).normal(size=(9, 4)))

    def bags(indices: Any, begins: Any) -> Any:
        return meta.embedding_bag(weight, indices, begins, mode=mode), meta.embedding_bag(
            weight, indices[None], mode=mode
        )

    executor = meta.vm.compile(bags, dynamic={"indices": {0: "n"}, "begins": {0: "bags"}})
    for count in (2, 3):
        inputs = meta.arange(3 * count) % 9, meta.arange(count) * 2
        for ours, expected in zip(executor(*inputs), bags(*inputs), strict=True):
            np.testing.assert_allclose(ours.numpy(), expected.numpy(), 1e-12)


def test_functions_of_open_sizes() -> None:
    _agrees(CREATED, (6, 3))


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (lambda n: int(n), SymbolicSizeError, "the size n is symbolic where a number is needed"),
        (lambda n: math.sqrt(n / 2), SymbolicSizeError, r"the value of \(n / 2\) is needed .* divide sizes by //"),
        (lambda n: round(n / 2), SymbolicSizeError, r"the value of \(n / 2\) is needed"),
        (lambda n: max(n, 1), TypeInferenceError, "n < 1 is not known .* write meta.dim.minimum or maximum"),
        (lambda n: 1 if n > 3 else 2, TypeInferenceError, "whether n > 3 is not known"),
        (lambda n: n | 1, NotSupportedError, "the digits of the symbolic size n are needed"),
        (lambda n: n.bit_length(), NotSupportedError, "the digits of the symbolic size n are needed"),
        (lambda n: n * 1j, NotSupportedError, "meets a complex number"),
        (lambda n: meta.full((2,), n / 2), ArgumentError, "SizeNumber .*expected a number or a size; multiply it"),
    ],
)
def test_what_sizes_do_not_compute_is_refused_by_name(function: Any, error: type[MetaError], text: str) -> None:
    with pytest.raises(error, match=text):
        meta.vm.compile(lambda x: x * function(x.shape[0]), dynamic={"x": {0: "n"}})(_rows(3))


CHECKED: dict[str, tuple[Function, int]] = {
    "argmax": (lambda x: meta.argmax(x, 0), 0),
    "amin": (lambda x: meta.amin(x, 0), 0),
    "topk": (lambda x: meta.topk(x, 3, axis=0)[0], 2),
    "quantile": (lambda x: meta.quantile(x, 0.5, 0), 0),
    "median": (lambda x: meta.median(x, 0)[0], 0),
    "kthvalue": (lambda x: meta.kthvalue(x, 3, 0)[0], 2),
    "narrow": (lambda x: meta.narrow(x, 0, 1, 2), 2),
    "reflect": (lambda x: meta.pad(x, ((2, 2), (0, 0)), mode="reflect"), 2),
    "unfold": (lambda x: meta.unfold(x, 0, 3, 1), 2),
    "conv": (lambda x: meta.conv1d(x.T[None], meta.ones((2, 4, 3))), 2),
    "division": (lambda x: x[: 6 // x.shape[0]], 0),
    "position": (lambda x: x[3], 2),
    "crop": (lambda x: meta.pad(x, ((-2, 0), (0, 0))), 1),
}


@pytest.mark.parametrize("name", CHECKED)
def test_sizes_that_eager_calls_refuse_are_refused(name: str, tmp_path: Path) -> None:
    function, wrong = CHECKED[name]
    executor = meta.vm.compile(function, dynamic={"x": {0: "n"}})
    x = _rows(6)
    np.testing.assert_allclose(executor(x).numpy(), function(x).numpy(), 1e-5, 1e-6)
    executor.save(tmp_path / "program")
    for program in (function, executor, meta.vm.load(tmp_path / "program")):
        with pytest.raises((MetaError, ZeroDivisionError)):
            program(_rows(wrong))


def test_functions_treat_empty_axes_apart() -> None:
    executor = meta.vm.compile(lambda x: x.sum() if x.shape[0] else meta.full((), -1.0), dynamic={"x": {0: "n"}})
    assert [executor(_rows(count)).item() >= 0 for count in (3, 0, 2)] == [True, False, True]
    with pytest.raises(ArgumentError, match="with n = 0"):
        meta.vm.compile(lambda x, y: (x, y), dynamic={"x": {0: "n"}, "y": {0: "n"}})(_rows(0), _rows(2))


def test_numbers_of_open_sizes_are_rounded_where_they_are_computed() -> None:
    executor = meta.vm.compile(
        lambda x: meta.full((x.shape[0],), -0.5, dtype="bfloat16") * 2.0 + 0.5, dynamic={"x": {0: "n"}}
    )
    assert executor(_rows(3)).tolist() == [-0.5] * 3
