"""Results of compiled functions are where torch has them: strides, offsets, shared memory, storages; and sizes that
depend on values, and indices out of range, do what eager torch does."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from meta.frontend.torch import compile_backend, explain
from meta.frontend.torch.dynamo import call as program_calls
from scripts import fuzz_compile

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
X = torch.randn(4, 6)
IMAGE = torch.randn(2, 3, 2, 2).to(memory_format=torch.channels_last)
aten = torch.ops.aten


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()


def compiled(function, **options):
    return torch.compile(function, backend=compile_backend, **options)


def agrees(function, *calls, **options):
    """Values, dtypes, strides, offsets and shared memory of results are eager torch's, in each of several calls."""
    call = compiled(function, **options)
    for args in calls:
        assert not fuzz_compile.differences(fuzz_compile.outcome(function, args), fuzz_compile.outcome(call, args))


def windows(x):
    return (x.as_strided((x.numel() // 2 - 1, 4), (2, 1)),)


VIEWS = {
    "chunks": lambda x: x.chunk(4),
    "second half": lambda x: (x[x.shape[0] // 2 :],),
    "split": lambda x: torch.split(x, x.shape[0] // 2),
    "narrow": lambda x: (x.narrow(-1, 1, x.shape[-1] - 2),),
    "expand": lambda x: (x.expand(3, *x.shape),),
    "windows": windows,
    "result and its half": lambda x: (lambda y: (y, y[y.shape[0] // 2 :], y.t()))(x * 2),
    "pieces of one result": lambda x: (x * 2).split(2),
    "expanded result": lambda x: ((x.sum(0)).expand(5, x.shape[1]),),
    "dtypes": lambda x: (x.view(torch.int16), (x + 1).view(torch.int32)),
    "complex": lambda x: (lambda z: (z.conj(), z.real, torch.view_as_real(z)[..., 1], z.mH))(torch.complex(x, x)),
    "sizes": lambda x: (x[1:], x.shape[0] // 2, x.shape[0] * 0.5),
    "complex times a size": lambda x: (torch.complex(x, x) * x.shape[0],),
    "gaps": lambda x: (torch.empty_strided(x.shape, (16, 2)).copy_(x), x.new_empty(0)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_in_a_varying_size(name):
    agrees(VIEWS[name], (X,), (torch.randn(8, 6),), dynamic=True)


@pytest.mark.parametrize("name", ["result and its half", "expanded result", "gaps", "complex"])
def test_results_that_a_program_allocates(name, monkeypatch):
    """As on CUDA, where recorded graphs have memory of their own."""
    monkeypatch.setattr(program_calls, "_takes_memory", lambda module: False)
    agrees(VIEWS[name], (X,), (torch.randn(8, 6),), dynamic=True)
    agrees(lambda x: (x.clone(), x.t() * 2, x + 0), (X,))


def test_a_view_behind_a_graph_break_of_a_slice():
    def f(x):
        y = x[x.shape[0] // 2 :]
        torch._dynamo.graph_break()
        return y.t() * 2, y

    agrees(f, (torch.randn(9, 6)[1:],), (torch.randn(13, 6)[1:],), dynamic=True)


def test_writes_to_a_returned_view_reach_the_argument():
    x = torch.zeros(6)
    compiled(lambda x: x.chunk(2)[1], dynamic=True)(x).add_(1)
    assert x.tolist() == [0, 0, 0, 1, 1, 1]


MEMORY = {
    "transposed": (lambda x: (torch.as_strided(x.t() * 2, (6,), (1,), 0),), X),
    "of a slice": (lambda x: (torch.as_strided((x.t() * 2)[1:], (3,), (2,)) * 1,), X),
    "of an argument": (lambda x: (torch.as_strided(x, (3,), (2,)) * 1,), X[1:]),
    "before an argument": (lambda x: (torch.as_strided(x, (3,), (2,), 0) * 1,), X[1:]),
    "between elements": (lambda x: (torch.as_strided(x, (3,), (2,)) * 1,), X[:, 1:]),
    "channels last": (lambda x: (torch.as_strided(x + 1, (12,), (1,), 0),), IMAGE),
    "resize": (lambda x: (aten.resize(x.t() + 0, [2, 2]), aten.resize(x + 0, [2, 13])[0]), X),
    "resize_as": (lambda x: (aten.resize_as(x.t() + 0, x[:2, :2]) * 2,), X),
    "scatter": (lambda x: (torch.as_strided_scatter(x.t() * 2, torch.ones(3), (3,), (2,), 1),), X),
    "write": (lambda x: (lambda y: (y.as_strided((3,), (2,), 1).fill_(5), y))(x.t() * 2), X),
}  # fmt: skip


@pytest.mark.parametrize("name", MEMORY)
def test_operators_that_read_memory_in_order(name):
    function, x = MEMORY[name]
    agrees(function, (x,))


@torch.library.custom_op("memory::strides", mutates_args=())
def strides(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(x.stride(), dtype=torch.int64) * 1


@strides.register_fake
def _(x):
    return torch.empty(x.dim(), dtype=torch.int64)


@pytest.mark.parametrize("dynamic", [None, True])
def test_custom_operators_get_the_strides_of_torch(dynamic):
    def f(x):
        y = x.t() * 2
        return strides(x), strides(y), strides(y[:, 1:]), strides(y[1:].expand(2, *y[1:].shape))

    agrees(f, (X,), (torch.randn(5, 6),), dynamic=dynamic)
    agrees(lambda x: (strides(x + 1),), (IMAGE,))


@pytest.mark.parametrize("tracked", [False, True])
def test_results_share_memory_and_can_be_resized(tracked):
    x = torch.randn(2, 2, requires_grad=tracked)
    a, b = compiled(lambda x: (lambda y: (y.view(-1), y))(x * 2))(x)
    assert a.data_ptr() == b.data_ptr()
    with torch.no_grad():
        a.mul_(5)
    torch.testing.assert_close(b, x * 10)
    y = compiled(lambda x: x + 1)(torch.zeros(2))
    assert y.resize_(10)[:2].tolist() == [1, 1]
    assert torch.add(torch.ones(5), 1, out=y.resize_(0)).tolist() == [2] * 5
    y.untyped_storage().resize_(0)


# --- sizes that depend on values -------------------------------------------------------------------------------------


def taken(x, n):
    size = n.item()
    torch._check(size >= 2)
    torch._check(size <= x.shape[0])
    return x[:size] * 2, x.narrow(0, 0, size).sum(0), size


def joined(x, n):
    y = x[x > 0]
    return torch.cat([y, y * 2]).sum(), y.exp() * 2, torch.zeros(n.item()) + 1


def of_two_results(x, n):
    values, counts = torch.unique(n.repeat(3), return_counts=True)
    return values * 2, counts + 1, x.new_ones(3).repeat_interleave(torch.tensor([1, 2, 0])) * 2


@pytest.mark.parametrize("function", [taken, joined, of_two_results])
def test_sizes_that_depend_on_values(function):
    """Torch runs the calls that decide them; what lies between is compiled, once for all sizes."""
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        x = torch.randn(5, 3)
        agrees(function, (x, torch.tensor(3)), (x, torch.tensor(4)), fullgraph=True)
        report = explain(function, x, torch.tensor(3))
    assert len(report.graphs) == 1
    assert 0 < sum(report.fallbacks.values()) < report.graphs[0].operators
    assert not report.graphs[0].by_torch


@torch.library.custom_op("memory::of_some_shape", mutates_args=())
def of_some_shape(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@of_some_shape.register_fake
def _(x):
    context = torch.library.get_ctx()
    return x.new_empty([context.new_dynamic_size() for _ in x.shape])


@torch.library.custom_op("memory::copied", mutates_args=())
def copied(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


copied.register_fake(torch.empty_like)


def test_all_sizes_of_a_custom_result_may_depend_on_values():
    x = torch.randn(2, 3, 4)
    agrees(lambda x: (copied(of_some_shape(x)),), (x,), (x[1:],), fullgraph=True)
    agrees(lambda x: (copied(of_some_shape(x)).permute(2, 0, 1) + 1,), (x,), fullgraph=True)


def test_the_gradient_of_a_selection_by_a_mask():
    weight = torch.randn(5, requires_grad=True)
    x = torch.tensor([1.0, -1, 2, -2, 3])
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        f = compiled(lambda x: (weight[x > 0].exp() * x[x > 0]).sum(), fullgraph=True)
        (gradient,) = torch.autograd.grad(f(x), weight)
    torch.testing.assert_close(gradient, torch.where(x > 0, weight.exp() * x, 0).detach())


def test_a_maximum_over_an_axis_of_an_empty_tensor():
    agrees(lambda v: (v.min(dim=1).values * 2,), (torch.rand(10, 3, 0),), dynamic=True)


# --- indices ---------------------------------------------------------------------------------------------------------

INDEXED = {
    "index": lambda x, i: x[i] * 2,
    "two indices": lambda x, i: x[i, i] * 2,
    "gather": lambda x, i: x.gather(0, i[None]) + 1,
    "index_select": lambda x, i: x.index_select(1, i),
    "embedding": lambda x, i: F.embedding(i, x),
    "bag": lambda x, i: F.embedding_bag(i, x, torch.tensor([0, 1])),
    "put": lambda x, i: x.index_put((i,), torch.ones(6)),
    "add": lambda x, i: x.index_add(0, i, torch.ones(2, 6)),
    "scatter": lambda x, i: x.scatter(0, i[None], 1.0),
    "loss": lambda x, i: F.cross_entropy(x[:2], i),
}


@pytest.mark.parametrize("name", INDEXED)
def test_indices_out_of_range_raise_an_error(name):
    """As in torch, which raises IndexError or RuntimeError by operator. Arguments are left as they were."""
    f, x = INDEXED[name], X.clone()
    call = compiled(f)
    torch.testing.assert_close(call(x, torch.tensor([0, 3])), f(x, torch.tensor([0, 3])))
    wrong = torch.tensor([0, 17])
    with pytest.raises((IndexError, RuntimeError)) as expected:
        f(x, wrong)
    with pytest.raises(expected.type, match=r"is 17, out of range for size"):
        call(x, wrong)
    assert torch.equal(x, X)


def test_a_mean_loss_divides_its_gradient_by_the_weight_that_is_passed():
    x, target = torch.randn(5, 5), torch.tensor([0, 1, 2, 3, -100])
    for weight in (None, torch.rand(5)):
        agrees(
            lambda g, x, t, w: (aten.nll_loss_backward(g, x, t, w, 1, -100, torch.tensor(2.5)),),
            (torch.randn(()), x, target, weight),
        )


# --- random functions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
def test_random_functions(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert fuzz_compile.run(4, seed) == []


def test_the_judge_of_random_functions_sees_what_differs():
    x = np.arange(6.0).reshape(2, 3)
    a, b = torch.from_numpy(x.copy()), torch.from_numpy(x.copy())
    expected = fuzz_compile.outcome(lambda x: (x[1:], x), [a])
    assert fuzz_compile.differences(expected, fuzz_compile.outcome(lambda x: (x[1:], x), [b])) == []
    for wrong in (lambda x: (x[:1], x), lambda x: (x[1:].clone(), x), lambda x: (x[1:], x.t().contiguous().t())):
        assert fuzz_compile.differences(expected, fuzz_compile.outcome(wrong, [b]))
