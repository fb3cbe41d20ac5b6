"""Names that NumPy and torch have for the same operators and methods."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import meta
from meta._generated.table import ALIASES
from meta.errors import ArgumentError

VALUES = [[0.25, -0.5, 0.75], [1.5, -2.0, 3.0]]
UNARY = ["absolute", "arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh", "clone", "neg"]
BINARY = ["arctan2", "div", "eq", "fmod", "ge", "gt", "le", "lt", "mul", "ne", "pow", "remainder", "sub", "true_divide"]


def check(ours: Any, theirs: torch.Tensor) -> None:
    assert ours.dtype == str(theirs.dtype).removeprefix("torch.")
    torch.testing.assert_close(torch.tensor(ours.numpy()), theirs, equal_nan=True)


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_elementwise(name: str) -> None:
    x, t = meta.array(VALUES), torch.tensor(VALUES)
    operands = [(x, t)] * (2 if name in BINARY else 1)
    expected = getattr(torch, name)(*[b for _, b in operands])
    check(getattr(meta, name)(*[a for a, _ in operands]), expected)
    if name != "fmod":  # a function only
        check(getattr(x, name)(*[a for a, _ in operands[1:]]), expected)


@pytest.mark.parametrize(
    ("name", "args"),
    [("reshape", (3, 2)), ("reshape", ((3, 2),)), ("view", (3, -1)), ("view", (-1,)), ("permute", (1, 0)), ("t", ()),
     ("permute", ((1, 0),)), ("flatten", ()), ("unsqueeze", (1,)), ("swapaxes", (0, 1)), ("movedim", (0, 1)),
     ("clamp", (-1.0, 1.0)), ("broadcast_to", ((4, 2, 3),))],
)  # fmt: skip
def test_methods(name: str, args: Any) -> None:
    check(getattr(meta.array(VALUES), name)(*args), getattr(torch.tensor(VALUES), name)(*args))


@pytest.mark.parametrize("name", ["half", "bfloat16", "float", "double", "short", "int", "long", "bool"])
def test_casts(name: str) -> None:
    ours, theirs = getattr(meta.array(VALUES), name)(), getattr(torch.tensor(VALUES), name)()
    assert ours.dtype == str(theirs.dtype).removeprefix("torch.")
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("name", ["cat", "concat"])
def test_concatenation(name: str) -> None:
    x, t = meta.array(VALUES), torch.tensor(VALUES)
    check(getattr(meta, name)([x, x], 1), getattr(torch, name)([t, t], 1))


def test_shifts_and_numbers_of_dimensions() -> None:
    x, t = meta.array([5, -3]), torch.tensor([5, -3])
    for name in ("bitwise_left_shift", "bitwise_right_shift"):
        check(getattr(meta, name)(x, 1), getattr(torch, name)(t, 1))
    assert meta.invert(x).tolist() == (~t).tolist()
    assert (x.dim(), meta.array(1.0).dim()) == (1, 0)


def test_methods_in_a_program() -> None:
    step = meta.trace(lambda x: x.permute(1, 0).view(2, 3).flatten().float().clone())
    x = meta.array(VALUES)
    assert meta.vm.compile(step)(x).tolist() == step(x).tolist()


def test_aliases_are_the_functions_themselves() -> None:
    for alias, name in ALIASES.items():
        assert getattr(meta, alias) is getattr(meta, name)


def test_sizes_are_numbers() -> None:
    x = meta.array(VALUES)
    assert (x.size, x.size * 2, repr(x.size)) == (6, 12, "6")
    assert x.reshape(x.size).shape == (6,)
    for call, remedy in ((lambda x: x.size(), r"x.shape for x.size\(\)"), (lambda x: x.size(0), r"x.shape\[0\]")):
        with pytest.raises(ArgumentError, match=rf"\[size\] x.size is called; .*write {remedy}"):
            call(x)
        with pytest.raises(ArgumentError, match=r"\[size\] x.size is called"):
            meta.trace(call).record(x)


def test_names_of_arguments() -> None:
    with pytest.raises(ArgumentError, match=r"\[sum\] unknown argument 'dim'; expected .*; write axis="):
        meta.explain("sum", meta.array(VALUES), dim=1)
