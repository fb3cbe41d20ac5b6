"""Calls of operators of meta in torch: operands in other memory orders, gradients by attributes, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import meta
from meta.errors import DeviceError, TypeInferenceError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
ops = torch.ops.meta


@pytest.fixture(scope="module", autouse=True)
def _all_operators() -> None:
    meta.torch.register()


def gradients(f: Callable[..., torch.Tensor], *args: torch.Tensor) -> tuple[Any, ...]:
    return torch.autograd.grad((f(*args) ** 2).sum(), args)


@pytest.mark.parametrize(
    ("name", "args", "is_read"),
    [
        ("matmul", lambda x: (x(2, 64, 128), x(80, 128).t()), True),
        ("matmul", lambda x: (x(128, 64).t(), x(128, 80)), True),
        ("matmul", lambda x: (x(128, 64).t(), x(64, 80), True), True),
        ("matmul", lambda x: (x(128, 64)[:, ::2], x(80, 32).t()), False),
        ("dense", lambda x: (x(64, 128), x(128, 80).t(), x(80)), True),
        ("attention_with_lse", lambda x: [x(2, 60, 3, 32).transpose(1, 2) for _ in range(3)], True),
        ("softmax", lambda x: (x(128, 64).t(),), False),
    ],
)
def test_strided_operands(name: str, args: Callable[..., Any], is_read: bool) -> None:
    """Equal to the call of compact operands; kernels that take strides read the memory of others without a copy."""
    generator = torch.Generator().manual_seed(0)
    strided = args(lambda *shape: torch.randn(*shape, generator=generator))
    compact = [x.contiguous() if isinstance(x, torch.Tensor) else x for x in strided]
    call = getattr(ops, name)
    torch.testing.assert_close(call(*strided), call(*compact))
    with torch.profiler.profile() as profile:
        call(*strided)
    copies = sum(e.count for e in profile.key_averages() if e.key in ("aten::contiguous", "aten::clone"))
    assert (copies == 0) is is_read


def test_gradients_of_calls_that_differ_in_attributes() -> None:
    x = torch.randn(3, 3, requires_grad=True)
    for axis in ([0], [1], [0, 1]):
        for keepdims in (False, True):
            found = gradients(lambda x, a=axis, k=keepdims: ops.sum(x, a, k), x)
            torch.testing.assert_close(found, gradients(lambda x, a=axis, k=keepdims: x.sum(a, k), x))
    for number in (1, 1.0, True, 0.0, -0.0):
        found = gradients(lambda x, n=number: ops.divide(1.0, ops.multiply(x, n)) if n else ops.multiply(x, n), x)
        torch.testing.assert_close(found, gradients(lambda x, n=number: 1 / (x * n) if n else x * n, x))


def test_operands_on_two_devices() -> None:
    x, w = torch.ones(2, 3), torch.ones(3)
    for args in ((x, w.to("meta")), (x.to("meta"), w)):
        with pytest.raises(DeviceError, match=r"rms_norm.*operands are on"):
            ops.rms_norm(*args)


def test_errors_name_the_line_of_the_call() -> None:
    for x in (torch.ones(2, 3), torch.ones(2, 3, requires_grad=True)):
        with pytest.raises(TypeInferenceError, match=r"contract 3 with 2.*\(at .*test_operator_calls\.py"):
            ops.matmul(x, x)


def test_check_that_raises_is_no_reason_to_run_in_torch() -> None:
    def wrong(call: Any) -> str | None:
        return call.nothing

    torch._dynamo.reset()
    with meta.register_dialect("wrongcheck", plevel=30, tensors="torch") as dialect:
        dialect.from_torch("silu", torch.nn.functional.silu, takes=("x",), accepts=wrong)
        with pytest.raises(Exception, match=r"wrongcheck\.silu.*its check of a call raised AttributeError"):
            torch.compile(lambda x: torch.nn.functional.silu(x) + 1, backend="meta")(torch.ones(2, 2))
