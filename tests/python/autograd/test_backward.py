"""Backward: accumulation, reuse, retained and freed graphs, pruning, hooks, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.errors import ArgumentError, GradientError, TypeInferenceError
from meta.testing import check


def leaf(*shape: int, seed: int = 0, dtype: str = "float32") -> meta.NDArray:
    x = meta.array(np.random.default_rng(seed).uniform(-1, 1, shape).astype(dtype))
    x.requires_grad = True
    return x


def torch_copy(x: meta.NDArray) -> torch.Tensor:
    return torch.tensor(x.detach().numpy(), requires_grad=True)


def test_accumulates_over_calls() -> None:
    x = leaf(3)
    (x * 2).sum().backward()
    (x * 3).sum().backward()
    check(x.grad, np.full(3, 5.0))


def test_leaf_used_many_times() -> None:
    x = leaf(2, 3)
    t = torch_copy(x)
    y = x * x + meta.tanh(x) * x - x
    y.backward(meta.ones(y.shape))
    (t * t + torch.tanh(t) * t - t).backward(torch.ones(2, 3))
    check(x.grad, t.grad, rtol=1e-5, atol=1e-6)


def test_one_operand_twice_in_a_call() -> None:
    x = leaf(3)
    (x * x).sum().backward()
    check(x.grad, 2 * x.detach().numpy())


def test_diamond_computes_each_node_once() -> None:
    x = leaf(3)
    y = meta.exp(x)
    for _ in range(60):  # 2**60 paths
        y = y * 0.5 + y * 0.5
    y.sum().backward()
    check(x.grad, np.exp(x.detach().numpy()), rtol=1e-4)


def test_root_that_another_root_depends_on() -> None:
    x = leaf(3)
    a = x * 2
    b = a * 3
    meta.autograd.backward([a, b], [meta.ones((3,)), meta.ones((3,))])
    check(x.grad, np.full(3, 8.0))


def test_repeated_root() -> None:
    x = leaf(3)
    y = x * 2
    meta.autograd.backward([y, y], [meta.ones((3,)), meta.ones((3,))])
    check(x.grad, np.full(3, 4.0))


def test_backward_of_a_leaf() -> None:
    x = leaf(3)
    x.backward(meta.ones((3,)))
    check(x.grad, np.ones(3))


def test_list_arguments_and_untracked_members() -> None:
    a, b = leaf(2, 3), meta.ones((1, 3))
    c = leaf(4, 3, seed=1)
    y = meta.concatenate([a, b, c], 0)
    dy = np.random.default_rng(2).uniform(size=(7, 3)).astype("float32")
    y.backward(meta.array(dy))
    check(a.grad, dy[:2])
    check(c.grad, dy[3:])
    assert b.grad is None


def test_second_backward_on_a_freed_graph() -> None:
    x = leaf(3)
    y = meta.exp(x).sum()
    y.backward()
    with pytest.raises(GradientError, match=r"\[sum\] the graph was freed by an earlier backward.*retain_graph=True"):
        y.backward()


def test_freed_part_shared_by_two_results() -> None:
    x = leaf(3)
    shared = meta.exp(x)
    a, b = (shared * 2).sum(), (shared * 3).sum()
    a.backward()
    with pytest.raises(GradientError, match=r"\[exp\] the graph was freed"):
        b.backward()


def test_retain_graph() -> None:
    x = leaf(3)
    y = meta.exp(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    check(x.grad, 2 * np.exp(x.detach().numpy()))


def test_non_scalar_needs_dy() -> None:
    x = leaf(2, 2)
    with pytest.raises(GradientError, match=r"\[backward\] the tensor has shape \(2, 2\) and no gradient was given"):
        (x * 2).backward()


def test_rejects_dy_of_another_type() -> None:
    x = leaf(2, 2)
    y = x * 2
    with pytest.raises(TypeInferenceError, match=r'dy is Tensor\[\(2,\), "float32"\]; expected the output\'s own type'):
        y.backward(meta.ones((2,)))
    with pytest.raises(TypeInferenceError, match=r'dy is Tensor.*"float64"'):
        y.backward(meta.ones((2, 2), dtype="float64"))
    with pytest.raises(ArgumentError, match=r"\[backward\] dy is ndarray; expected an NDArray .* wrap it"):
        y.backward(np.ones((2, 2)))  # type: ignore[arg-type]


def test_rejects_backward_without_a_graph() -> None:
    with pytest.raises(GradientError, match="does not require grad and was not computed from one that does"):
        meta.ones((1,)).backward()


def test_grad_does_not_change_grad_fields() -> None:
    x, w = leaf(3), leaf(3, seed=1)
    (dx,) = meta.autograd.grad((x * w).sum(), [x])
    check(dx, w.detach().numpy())
    assert x.grad is None
    assert w.grad is None


def test_grad_of_an_intermediate() -> None:
    x = leaf(3)
    h = meta.exp(x)
    y = (h * h).sum()
    dh, dx = meta.autograd.grad(y, [h, x])
    check(dh, 2 * h.detach().numpy())
    check(dx, 2 * np.exp(2 * x.detach().numpy()), rtol=1e-4)


def test_grad_computes_only_requested_gradients() -> None:
    x, w = leaf(3), leaf(3, seed=1)
    calls: list[str] = []
    hidden = meta.exp(w)
    hidden.register_hook(lambda _: calls.append("hidden"))
    meta.autograd.grad((x * hidden).sum(), x)
    assert not calls


def test_grad_of_an_unused_input() -> None:
    x, w = leaf(3), leaf(3, seed=1)
    y = (x * 2).sum()
    with pytest.raises(GradientError, match=r"input 1 was not used to compute the outputs.*allow_unused"):
        meta.autograd.grad(y, [x, w], retain_graph=True)
    dx, dw = meta.autograd.grad(y, [x, w], allow_unused=True)
    check(dx, np.full(3, 2.0))
    assert dw is None


@pytest.mark.parametrize("what", [None, 3, [None], np.ones(2)])
def test_rejects_arguments_that_are_not_arrays(what: Any) -> None:
    x = leaf(1)
    with pytest.raises(ArgumentError, match=r"\[grad\] inputs hold .*; expected an NDArray, or a list or tuple"):
        meta.autograd.grad(x * 2.0, what)
    with pytest.raises(ArgumentError, match=r"\[backward\] outputs hold"):
        meta.autograd.backward(what)


def test_rejects_gradients_of_another_type() -> None:
    x = leaf(1)
    for wrong in (meta.ones((7,)), meta.ones((1,), dtype="float64"), 1.0):
        with pytest.raises(GradientError, match="None, or an array: Tensor"):
            x.grad = wrong  # type: ignore[assignment]
    x.grad = meta.ones(x.shape)
    x.grad = None


def test_rejects_hooks_that_are_not_callable() -> None:
    with pytest.raises(ArgumentError, match=r"the hook is int; expected a function"):
        leaf(1).register_hook(3)  # type: ignore[arg-type]


def test_rejects_a_wrong_number_of_dys() -> None:
    x = leaf(3)
    with pytest.raises(GradientError, match=r"\[grad\] 1 output gradients for 2 outputs"):
        meta.autograd.grad([x * 2, x * 3], x, [meta.ones((3,))])


def test_create_graph_gives_higher_orders() -> None:
    x = leaf(4, dtype="float64")
    t = torch_copy(x)
    y = meta.tanh(x) * meta.exp(x)
    (g,) = meta.autograd.grad(y.sum(), x, create_graph=True)
    (gg,) = meta.autograd.grad(g.sum(), x, create_graph=True)
    (ggg,) = meta.autograd.grad(gg.sum(), x)
    ty = (torch.tanh(t) * torch.exp(t)).sum()
    (tg,) = torch.autograd.grad(ty, t, create_graph=True)
    (tgg,) = torch.autograd.grad(tg.sum(), t, create_graph=True)
    (tggg,) = torch.autograd.grad(tgg.sum(), t)
    for ours, theirs in ((g, tg), (gg, tgg), (ggg, tggg)):
        check(ours, theirs, rtol=1e-10, atol=1e-10)


def test_backward_with_create_graph_records_the_gradient() -> None:
    x = leaf(3, dtype="float64")
    (x * x * x).sum().backward(create_graph=True)
    first = x.grad
    assert first is not None
    assert first.requires_grad
    x.grad = None
    first.sum().backward()
    check(x.grad, 6 * x.detach().numpy(), rtol=1e-10, atol=1e-10)


def test_gradients_are_not_recorded_without_create_graph() -> None:
    x = leaf(3)
    dy = leaf(3, seed=1)
    (x + 1).backward(dy)
    assert x.grad is not None
    assert not x.grad.requires_grad


def test_gradients_do_not_share_memory() -> None:
    x, w = leaf(3), leaf(3, seed=1)
    dy = meta.ones((3,))
    (x + w).backward(dy)
    assert x.grad is not None
    assert w.grad is not None
    x.grad[:] = 7
    check(w.grad, np.ones(3))
    check(dy, np.ones(3))


def test_copies_views_of_dy() -> None:
    x = leaf(2, 3)
    dy = meta.ones((6,))
    x.reshape((6,)).backward(dy)
    assert x.grad is not None
    x.grad[:] = 7
    check(dy, np.ones(6))


def test_hooks_see_and_replace_gradients() -> None:
    x = leaf(3)
    h = x * 2
    gradients: list[meta.NDArray] = []
    remove = h.register_hook(gradients.append)
    h.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: g + 1)
    (h * 3).sum().backward()
    check(gradients[0], np.full(3, 3.0))
    check(x.grad, np.full(3, 61.0))
    remove()
    remove()
    x.grad = None
    h2 = (h * 3).sum()
    with pytest.raises(GradientError, match="freed"):
        h2.backward()
    assert len(gradients) == 1


def test_leaf_hooks_receive_the_accumulated_gradient() -> None:
    x = leaf(3)
    gradients: list[meta.NDArray] = []
    x.register_hook(gradients.append)
    (x * 2 + x * 3).sum().backward()
    assert len(gradients) == 1
    check(gradients[0], np.full(3, 5.0))


def test_rejects_hook_results_of_another_type() -> None:
    x = leaf(3)
    x.register_hook(lambda g: g.sum())
    with pytest.raises(GradientError, match=r"\[register_hook\] a hook returned Tensor\[\(\), .*gradient's type"):
        (x * 2).sum().backward()
    with pytest.raises(GradientError, match=r"\[register_hook\] the array does not require grad"):
        meta.ones((1,)).register_hook(lambda g: g)


def test_detach_stops_gradients() -> None:
    x = leaf(3)
    (x * x.detach()).sum().backward()
    check(x.grad, x.detach().numpy())
    assert not x.detach().requires_grad


def test_requires_grad_of_integers_and_of_results() -> None:
    with pytest.raises(GradientError, match=r"\[requires_grad\] the array has dtype int64; expected float16"):
        meta.array([1, 2]).requires_grad = True
    y = leaf(3) * 2
    y.requires_grad = True
    with pytest.raises(GradientError, match=r"computed from others that require grad; expected leaves only"):
        y.requires_grad = False


def test_numpy_of_a_tracked_array() -> None:
    x = leaf(3)
    with pytest.raises(GradientError, match=r"use x.detach\(\).numpy\(\)"):
        (x * 2).numpy()


@pytest.mark.parametrize("compiled", [False, True])
def test_an_array_frozen_after_its_use_gets_no_gradient(compiled):
    """As in torch; the mode of a model freezes nothing."""
    function = meta.vm.compile(meta.trace(lambda x, w: (x * w).sum())) if compiled else lambda x, w: (x * w).sum()
    x, w = meta.array([1.0, 2.0], requires_grad=True), meta.array([3.0, 4.0], requires_grad=True)
    y = function(x, w)
    x.requires_grad = False
    y.backward()
    assert x.grad is None
    assert w.grad.tolist() == [1.0, 2.0]
    x.requires_grad = True
    y = function(x, w)
    x.requires_grad = False
    x.requires_grad = True
    y.backward()
    assert x.grad.tolist() == [3.0, 4.0]
    model = meta.nn.Linear(2, 1)
    y = model(meta.ones((1, 2))).sum()
    model.infer_mode()
    y.backward()
    assert all(p.grad is not None for p in model.parameters())
