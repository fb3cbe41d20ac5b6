"""In-place operators: aliases see the result, gradients are those of NumPy's or torch's, and programs agree."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.errors import GradientError, MetaError, TypeInferenceError

OPERATORS = [operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod,
             operator.ipow]  # fmt: skip
BITS = [operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift]


@pytest.mark.parametrize("op", [*OPERATORS, *BITS], ids=lambda op: op.__name__)
@pytest.mark.parametrize("scalar", [False, True])
def test_aliases_see_the_result(op: Callable[[Any, Any], Any], scalar: bool) -> None:
    dtype = "int64" if op in BITS else "float32"
    host, other = np.array([[7, 5], [3, 9]], dtype), 2 if scalar else np.array([2, 1], dtype)
    x = meta.array(host)
    name, alias, before = x, x.reshape((4,)), x.version
    result = op(x, other if scalar else meta.array(other))
    assert result is name
    assert x.version == before + 1
    assert alias.tolist() == op(host, other).reshape(-1).tolist()


def test_matmul_gives_a_new_array() -> None:
    x = y = meta.ones((2, 2))
    y @= x
    assert y is not x
    assert x.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("x", "other", "text"),
    [
        (lambda: meta.ones((2,), dtype="int64"), 1.5, "the result in place is float32, the array int64"),
        (lambda: meta.ones((2,)), meta.ones((3, 1)), r"the result in place has shape \(3, 2\), the array \(2,\)"),
    ],
)
def test_results_that_do_not_fit(x: Any, other: Any, text: str) -> None:
    x = x()
    with pytest.raises(TypeInferenceError, match=rf"\[add\] {text}.*write x = meta.add\(x, other\)"):
        x += other
    assert (x.numpy() == 1).all()


def test_the_dtype_stays() -> None:
    x = meta.ones((2,), dtype="int32")
    x += meta.ones((2,), dtype="int64")
    assert (x.dtype, x.tolist()) == ("int32", [2, 2])


def test_leaves_are_written_without_gradients_only() -> None:
    w = meta.array([1.0, 2.0], requires_grad=True)
    with pytest.raises(GradientError, match=r"\[subtract\] .*is a leaf that requires grad"):
        w -= 1.0
    alias = w
    with meta.no_grad():
        w -= 1.0
    assert w is alias
    assert w.is_leaf
    assert w.requires_grad
    assert w.tolist() == [0.0, 1.0]


def _step(w: Any, total: Any, relu: Any) -> Any:
    h = w * 3.0
    h *= w
    h += 1.0
    h *= h
    out = relu(h)
    out += w
    total += out
    total *= total
    return total.sum()


def test_gradients_agree_with_torch() -> None:
    w, t = meta.array([1.0, -2.0], requires_grad=True), torch.tensor([1.0, -2.0], requires_grad=True)
    total = meta.zeros((2,))
    loss = _step(w, total, meta.relu)
    loss.backward()
    # Out of place, since torch refuses to differentiate `h *= h` and a result of relu that was written to.
    h = (t * 3 * t + 1) ** 2
    expected = ((torch.relu(h) + t) ** 2).sum()
    expected.backward()
    assert loss.item() == expected.item()
    assert w.grad.tolist() == t.grad.tolist()  # type: ignore[union-attr]
    assert total.requires_grad


def test_programs_agree() -> None:
    def step(w: Any) -> Any:
        loss = _step(w, meta.zeros((2,)), meta.relu)
        loss.backward()
        return loss, w.grad

    w = meta.array([1.0, -2.0], requires_grad=True)
    loss, gradient = meta.vm.compile(meta.trace(step))(w)
    w.grad = None
    eager, eager_gradient = step(w)
    assert (loss.tolist(), gradient.tolist()) == (eager.tolist(), eager_gradient.tolist())


def test_programs_write_their_arguments() -> None:
    def step(x: Any, y: Any) -> Any:
        alias = x
        alias += y
        return x * 2.0

    x = meta.array([1.0, 2.0])
    result = meta.vm.compile(meta.trace(step))(x, meta.ones((2,)))
    assert (x.tolist(), result.tolist()) == ([2.0, 3.0], [4.0, 6.0])


def test_programs_refuse_leaves() -> None:
    def step(w: Any) -> Any:
        w += 1.0
        return w

    with pytest.raises(GradientError, match=r"\[add\] .*is a leaf that requires grad"):
        meta.trace(step).ir(meta.array([1.0], requires_grad=True))


def test_saved_values_are_checked() -> None:
    h = meta.array([1.0, 2.0], requires_grad=True) * 3.0
    z = h * h
    h += 1.0
    with pytest.raises(GradientError, match="was modified in place"):
        z.sum().backward()


def test_shared_memory_with_gradients_is_refused() -> None:
    h = meta.array([1.0, 2.0], requires_grad=True) * 3.0
    view = h.reshape((2, 1))
    with pytest.raises(GradientError, match=r"\[multiply\] .*shares its memory with another array"):
        h *= 2.0
    del view
    h *= 2.0
    assert h.tolist() == [6.0, 12.0]


def test_views_see_a_result_with_gradients() -> None:
    w = meta.array([1.0, 2.0], requires_grad=True)
    for make in (lambda: meta.zeros((2,)), lambda: w * 0.0, lambda: meta.tanh(w * 0.0), lambda: meta.zeros((2,))[:]):
        x = make()
        views = [x.detach().numpy(), torch.from_dlpack(x.detach()), meta.from_dlpack(x.detach())]
        x += w * 3.0
        x *= x
        x -= w
        w.grad = None
        x.sum().backward()
        assert w.grad is not None
        assert w.grad.tolist() == [17.0, 35.0]
        assert [view.tolist() for view in views] == [x.tolist()] * 3


def test_results_that_a_gradient_reads_survive() -> None:
    w = meta.array([0.5, 1.0], requires_grad=True)
    y = meta.exp(w)
    view = y.detach().numpy()
    y *= w
    y.sum().backward()
    host = np.array([0.5, 1.0], np.float32)
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), np.exp(host) * (1 + host), rtol=1e-6)
    np.testing.assert_allclose(view, np.exp(host) * host, rtol=1e-6)


@pytest.mark.parametrize("index", [slice(None), Ellipsis, (slice(None), slice(None)), slice(0, 9)], ids=str)
def test_a_whole_array_is_written_with_gradients(index: Any) -> None:
    w = meta.array([[1.0, 2.0]], requires_grad=True)
    x, name = w * 2.0, None
    name = x
    x[index] *= w
    x.sum().backward()
    assert name.tolist() == [[2.0, 8.0]]
    assert w.grad is not None
    assert w.grad.tolist() == [[4.0, 8.0]]


@pytest.mark.parametrize(
    "write",
    [
        lambda x, w: operator.setitem(x, slice(None), operator.imul(x[:], meta.ones((3, 1)))),
        lambda x, w: operator.setitem(x, None, operator.imul(x[None], w)),
        lambda x, w: operator.iadd(x, meta.ones((3, 1))),
        lambda x, w: operator.setitem(x, slice(None), 1.0 + 2.0j),
        lambda x, w: operator.setitem(x, slice(None), meta.ones((3, 1))),
        lambda x, w: x.update(meta.ones((3,))),
        lambda x, w: meta.sgd(meta.ones_like(x), meta.ones_like(x), x, 0.1),
    ],
)
def test_refused_writes_change_nothing(write: Callable[[Any, Any], Any]) -> None:
    w = meta.array([[1.0, 2.0]], requires_grad=True)
    for x in (w, w * 1.0):
        before, node, version = x.tolist(), x._node, x.version
        with pytest.raises(MetaError):
            write(x, w)
        assert (x.tolist(), x._node, x.version) == (before, node, version)
