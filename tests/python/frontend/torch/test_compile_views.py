"""Views under torch.compile: saved once, read by torch's kernels where they are, and as torch has them in results."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch.nn import functional as F

from meta.frontend.torch import compile_backend, explain
from meta.frontend.torch.dynamo import convert
from meta.frontend.torch.dynamo.call import _Builder

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

B, T, HEADS, WIDTH = 2, 8, 4, 16
_attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_attention_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.fixture
def operands() -> Generator[list[tuple[tuple[int, ...], ...]]]:
    """The strides of queries, keys and values of attentions that torch runs inside of programs."""
    seen: list[tuple[tuple[int, ...], ...]] = []
    find, run = convert.find, convert.runnable

    def lacking(call: Any) -> Any:
        return None if "flash_attention" in call.operator else find(call)

    def recorded(target: Any) -> Callable[..., Any]:
        def attention(*args: Any, **kwargs: Any) -> Any:
            start = 1 if target is _attention_backward else 0
            seen.append(tuple(x.stride() for x in args[start : start + 3]))
            return run(target)(*args, **kwargs)

        return attention if target in (_attention, _attention_backward) else run(target)

    with patch.object(convert, "find", lacking), patch.object(convert, "runnable", recorded):
        yield seen


def heads(x: torch.Tensor) -> torch.Tensor:
    return x.view(x.shape[0], T, HEADS, -1).transpose(1, 2)


def attended(x: torch.Tensor, w: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """A layer of attention, whose queries, keys and values are thirds of one product."""
    q, k, v = map(heads, (x @ w).split(WIDTH, -1))
    y = F.scaled_dot_product_attention(q, k, v, mask[:, None].expand(x.shape[0], HEADS, T, T))
    return y.transpose(1, 2).reshape(x.shape)


def operands_of(batch: int = B) -> tuple[torch.Tensor, ...]:
    kind = {"dtype": torch.float64}
    return torch.randn(batch, T, WIDTH, **kind), torch.randn(WIDTH, 3 * WIDTH, **kind), torch.randn(batch, T, T, **kind)


def assert_same_gradients(
    function: Callable[..., Any], call: Callable[..., Any], *args: torch.Tensor, rest: Sequence[torch.Tensor] = ()
) -> None:
    """Results and gradients agree. rest: arguments without a gradient."""
    results: list[list[torch.Tensor]] = []
    for f in (function, call):
        leaves = [x.clone().requires_grad_() for x in args]
        y = f(*leaves, *rest)
        results.append([y.detach(), *torch.autograd.grad(y.square().sum(), leaves)])
    for expected, result in zip(*results, strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


def test_kernels_of_torch_read_parts_of_one_product(operands: Any) -> None:
    """In the forward and in the backward pass, where they were: each is a third of one product's memory."""
    call = torch.compile(attended, backend=compile_backend)
    *args, mask = operands_of()
    assert_same_gradients(attended, call, *args, rest=[mask])
    row = 3 * WIDTH
    assert operands == [((T * row, WIDTH // HEADS, row, 1),) * 3] * 2


def test_batches_of_any_size(operands: Any) -> None:
    call = torch.compile(attended, backend=compile_backend, dynamic=True)
    for batch in (2, 5):
        *args, mask = operands_of(batch)
        assert_same_gradients(attended, call, *args, rest=[mask])
    assert len(operands) >= 4


def saved_shapes(function: Callable[..., Any], *args: torch.Tensor) -> list[tuple[int, ...]]:
    """The shapes of what the program of a forward pass returns."""
    shapes: list[list[tuple[int, ...]]] = []
    real = _Builder._converted

    def recorded(*builder: Any) -> Any:
        converted = real(*builder)
        shapes.append([tuple(result.layout.shape) for result in converted.results])
        return converted

    with patch.object(_Builder, "_converted", recorded):
        torch.compile(function, backend=compile_backend)(*args)
    return shapes[0]


def test_a_view_is_saved_as_what_it_is_a_view_of() -> None:
    """The forward graph returns one product for three heads, which the backward graph takes apart."""
    x, w, mask = operands_of()
    shapes = saved_shapes(attended, x.requires_grad_(), w.requires_grad_(), mask)
    assert shapes == [(B, HEADS, T, WIDTH // HEADS), (B * T, 3 * WIDTH), (B, HEADS, T)]  # result, product, lse


@pytest.mark.parametrize(
    ("gradient", "shape"),
    [
        (lambda x: F.avg_pool2d(x.exp(), 2), (2, 3, 4, 4)),
        (lambda x: F.adaptive_avg_pool2d(x.exp(), 2), (2, 3, 4, 4)),
        (lambda x: F.pad(x.exp(), (1, 1, 1, 1), "reflect"), (2, 3, 4, 4)),
        (lambda x: F.pad(x.exp(), (1, 1, 1, 1), "replicate"), (2, 3, 4, 4)),
        (lambda x: F.nll_loss(F.log_softmax(x, -1), torch.arange(4)), (4, 8)),
        (lambda x: F.nll_loss(x.sin(), torch.arange(2)[:, None, None].expand(2, 4, 4)), (2, 3, 4, 4)),
    ],
)
def test_gradients_that_read_a_shape(gradient: Callable[..., Any], shape: tuple[int, ...]) -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        y = gradient(x)
        return (y * torch.arange(1.0, y.numel() + 1).view(y.shape)).sum() + x.sum()

    assert_same_gradients(loss, torch.compile(loss, backend=compile_backend), torch.randn(shape))


def test_what_gives_a_shape_alone_is_not_saved() -> None:
    """The gradient of the loss needs no values of the sines, and theirs only what they are the sines of."""

    def loss(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.nll_loss((x @ x.T).float().sin(), labels)

    shapes = saved_shapes(loss, torch.randn(6, 6, dtype=torch.bfloat16).requires_grad_(), torch.arange(6))
    assert shapes.count((6, 6)) == 1  # the product


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 2).split([1, 3, 4], 1),
        lambda x: (x * 2).split(3, -1)[::-1],
        lambda x: ((x + 1).transpose(0, 1), (x + 1).transpose(-1, 0)[1:]),
        lambda x: ((x + 1).detach(), torch.sin(x).unsqueeze(0).expand(3, 4, 8)),
    ],
    ids=["sections", "sections from behind", "transposes", "detached"],
)
def test_views_and_their_gradients(function: Callable[..., Any]) -> None:
    x = torch.randn(4, 8)

    def joined(x: torch.Tensor) -> torch.Tensor:
        return sum((p.sin() * torch.arange(1.0, p.numel() + 1).view(p.shape)).sum() for p in function(x)) + x.sum()

    assert_same_gradients(joined, torch.compile(joined, backend=compile_backend), x)


def test_writes_to_views_that_are_results() -> None:
    """What a graph returns shares memory as in torch, before and after a write in place."""

    def parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.cos()
        a, b = y.split(4, -1)
        return y, a.transpose(0, 1), b

    results: list[tuple[torch.Tensor, ...]] = []
    for f in (parts, torch.compile(parts, backend=compile_backend)):
        torch.manual_seed(1)
        with torch.no_grad():
            y, a, b = f(torch.randn(4, 8))
            a.add_(1.0)
            b[0].zero_()
        results.append((y, a, b))
    for expected, result in zip(*results, strict=True):
        torch.testing.assert_close(result, expected)
        assert result.stride() == expected.stride()


def test_gradients_of_slices_beside_operators_of_torch(operands: Any) -> None:
    """A gradient that a row takes by differentiation needs none of what torch runs before it."""

    def turned(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = heads(x @ w)
        y = torch.cat([-y[..., 2:], y[..., :2]], -1)
        return F.scaled_dot_product_attention(y, y, y).transpose(1, 2).reshape(x.shape)

    args = torch.randn(B, T, WIDTH, requires_grad=True), torch.randn(WIDTH, WIDTH, requires_grad=True)
    report = explain(turned, *args)
    assert set(report.fallbacks) == {_attention.name(), _attention_backward.name()}
    assert_same_gradients(turned, torch.compile(turned, backend=compile_backend), *(x.detach() for x in args))
    assert operands
