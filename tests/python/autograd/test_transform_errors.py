"""Arguments that jvp, vjp, jacobian, hessian and vmap refuse, and the texts of their errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import meta
from meta.autograd import hessian, hvp, jacobian, jvp, vjp, vmap
from meta.errors import ArgumentError, GradientError, MetaError, NotSupportedError, TraceError, TypeInferenceError

ONE, TWO = meta.ones((3,)), meta.ones((2, 3))


def _leak() -> Any:
    arrays: list[Any] = []
    jvp(lambda x: arrays.append(x) or x, ONE, ONE)
    return arrays[0] + 1.0


def _leak_into_another() -> Any:
    arrays: list[Any] = []
    jvp(lambda x: arrays.append(x) or x, ONE, ONE)
    return vmap(lambda x: x + arrays[0])(TWO)


ERRORS: list[tuple[Callable[[], Any], type[MetaError], str]] = [
    (lambda: jvp(meta.sin, ONE, (ONE, ONE)), ArgumentError,
     r"\[jvp\] 2 tangents for 1 tensors, or nested otherwise; expected a tangent for each tensor.*pass None for zeros"),
    (lambda: jvp(meta.sin, ONE, TWO), TypeInferenceError,
     r'\[jvp\] the tangent of argument 0 is Tensor\[\(2, 3\), "float32"\]; expected the tensor\'s own type.*reshape'),
    (lambda: jvp(meta.abs, meta.array([1]), meta.array([1])), ArgumentError,
     r"\[jvp\] the tangent of argument 0, of dtype int64, is not None; expected None for integers"),
    (lambda: jvp(lambda x: 1.0, ONE, ONE), ArgumentError, r"\[jvp\] the function returns a float; expected tensors"),
    (lambda: vjp(meta.sin, ONE)[1](TWO), TypeInferenceError,
     r"\[vjp\] the gradient of result 0 is .*; expected the result's own type.*; reshape, cast or move it"),
    (lambda: vjp(meta.sin, ONE)[1]((ONE, ONE)), ArgumentError,
     r"\[vjp\] 2 gradients for 1 results, or nested otherwise; expected the structure of the results; pass None"),
    (lambda: jacobian(meta.sin, ONE, mode="both"), ArgumentError,  # type: ignore[arg-type]
     r"\[jacobian\] mode is 'both'; expected \"reverse\" or \"forward\""),
    (lambda: jacobian(meta.abs, meta.array([1])), ArgumentError,
     r"\[jacobian\] argument 0 has dtype int64; expected floating dtypes; pass it by a closure"),
    (lambda: jacobian(meta.argmax, ONE), GradientError, r"\[jacobian\] result 0 has dtype int64; expected floating"),
    (lambda: hessian(meta.sin, ONE), ArgumentError,
     r"\[hessian\] f returns Tensor\[\(3,\), \"float32\"\]; expected one floating tensor of one element; sum it"),
    (lambda: vmap(meta.sin, randomness="none")(TWO), ArgumentError,  # type: ignore[arg-type]
     r"\[vmap\] randomness is 'none'; expected \"error\", \"same\" or \"different\""),
    (lambda: vmap(meta.add, (0,))(TWO, TWO), ArgumentError,
     r"\[vmap\] in_dims has 1 items for 2 arguments; expected one"),
    (lambda: vmap(meta.sin, 2)(TWO), ArgumentError,
     r"\[vmap\] axis 2 of argument 0, which has shape \(2, 3\); expected -2 to 1"),
    (lambda: vmap(meta.sin, None)(TWO), ArgumentError, r"\[vmap\] no argument has an axis to map; .*set in_dims"),
    (lambda: vmap(meta.add)(TWO, ONE), ArgumentError, r"\[vmap\] the axes have lengths 2 and 3; expected one length"),
    (lambda: vmap(lambda x: x.item())(ONE), NotSupportedError,
     r"\[vmap\] the value of .* is needed, which differs from call to call; expected operators; use meta.where"),
    (lambda: vmap(lambda x: meta.argwhere(x))(TWO), NotSupportedError,
     r"\[argwhere\] the shape of its result depends on values.*pass the size"),
    (lambda: jvp(lambda x: x.numpy(), ONE, ONE), NotSupportedError,
     r"\[numpy\] the memory of a tensor inside of jvp is needed; expected operators of meta"),
    (lambda: jvp(lambda x: x.sum().backward(), ONE, ONE), GradientError,
     r"\[backward\] backward is used on a tensor inside of jvp.*use meta.autograd.vjp"),
    (_leak, TraceError, r"\[add\] a tensor inside of jvp is used after its end; expected results of the transformed"),
    (_leak_into_another, TraceError, r"a tensor inside of jvp is used after its end; .*; return it from the function"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), ERRORS, ids=[text[:50] for _, _, text in ERRORS])
def test_errors(call: Callable[[], Any], error: type[MetaError], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("transform", [jvp, vjp, jacobian, hessian, hvp, vmap])
def test_functions_are_callable(transform: Callable[..., Any]) -> None:
    tensors = [ONE] * {"jvp": 2, "hvp": 2, "vmap": 0}.get(transform.__name__, 1)
    with pytest.raises(ArgumentError, match=rf"\[{transform.__name__}\] .*3.*; expected"):
        transform(3, *tensors)


def test_derivatives_need_a_tensor() -> None:
    with pytest.raises(ArgumentError, match=r"\[jacobian\] primals are int without tensors; expected floating tensors"):
        hessian(lambda x: x, 10**400)
