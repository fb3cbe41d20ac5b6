"""Composed functions refuse arguments of a wrong kind with errors that name them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import meta
from meta._generated.table import FUNCTIONS
from meta.errors import ArgumentError, MetaError
from tests.python.raw_errors import raw_error

WRONG = [None, "wrong", object(), {"a": 1}]
X = meta.array([[1.0, 2.0], [3.0, 4.0]])


def composed() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in sorted(FUNCTIONS):
        yield name, getattr(meta, name)
    for module in (meta.linalg, meta.fft):
        yield from ((f"{module.__name__}.{name}", getattr(module, name)) for name in dir(module))


def test_every_function_with_arguments_of_a_wrong_kind() -> None:
    raw: dict[str, str] = {}
    for name, function in composed():
        if not inspect.isfunction(function):
            continue
        parameters = inspect.signature(function).parameters.values()
        required = [p for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
        for wrong in WRONG if required else ():
            error = raw_error(partial(function, *[wrong] * len(required)))
            if error:
                raw[f"{name}({type(wrong).__name__})"] = error
    assert raw == {}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: meta.einsum(X, X), r'the equation is of class NDArray; .* write meta.einsum\("ij,jk->ik", x1, x2\)'),
        (lambda: meta.diag(None), r"\[diag\] argument 'x' is None .*; expected a tensor"),
        (lambda: meta.group_norm(meta.array(1.0), 2), r"\[group_norm\] 'x' is a tensor of shape \(\), 'groups' is 2"),
        (lambda: meta.affine_grid(X, (2, 2)), r"\[affine_grid\] 'theta' has shape \(2, 2\); expected 3 axes"),
        (
            lambda: meta.affine_grid(meta.ones((1, 2, 2)), (2, 2)),
            r"'theta' has shape \(1, 2, 2\); expected \(n, 2, 3\)",
        ),
        (lambda: meta.affine_grid(meta.ones((1, 2, 3)), (2, 2, 2)), r"size is \(2, 2, 2\); expected \(height, width\)"),
    ],
)
def test_errors(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(MetaError, match=message):
        call()


def test_errors_of_a_users_function_are_its_own() -> None:
    def distance(a: Any, b: Any) -> Any:
        raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine$"):
        meta.triplet_margin_with_distance_loss(X, X, X, distance)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, r"\[diag\] argument 'x' is missing; expected x, offset"),
        ((X, 1, 2), {}, r"\[diag\] 3 positional arguments; expected at most 2: x, offset"),
        ((X,), {"k": 1}, r"\[diag\] unknown argument 'k'; expected x, offset; write offset=1"),
    ],
)
def test_arguments_that_do_not_fit_the_signature(args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        meta.diag(*args, **kwargs)
