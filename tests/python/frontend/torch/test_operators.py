"""Operators of meta as operators of torch: `meta.torch.register`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.nn import functional as F

import meta
from meta.errors import AxisError, GradientError, NotSupportedError, RegistryError, TypeInferenceError
from meta.frontend.torch import from_exported
from meta.frontend.torch.operators import registration
from meta.schema._dsl import Arg, Float, Schema, Tensor
from tests.python.conformance.torch_operators import differences, opcheck
from tests.python.op.samples import first_rows

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
ops = torch.ops.meta
REPRESENTATIVE = (
    "add", "argmax", "cast", "cofactor", "concatenate", "conv2d", "dropout", "layer_norm", "max_pool2d", "pad",
    "reshape", "attention_with_lse", "softmax", "split", "topk", "uniform", "where", "zeros", "zeros_like",
)  # fmt: skip
ROWS = [row for row in first_rows() if row.op in REPRESENTATIVE]


@pytest.fixture(scope="module", autouse=True)
def _all_operators() -> None:
    meta.torch.register()


@pytest.fixture(scope="module")
def swish() -> Iterator[Any]:
    @meta.define(
        "torchtest::swish",
        Schema("swish", Arg("x", Tensor), Arg("beta", Float, 1.0)),
        gradient={"x": "dy * sigmoid(x * beta) * (1 + x * beta * (1 - sigmoid(x * beta)))"},
        reference=lambda x, beta: x / (1 + np.exp(-x * beta)),
    )
    def swish(x, beta):
        return x

    meta.torch.register("torchtest::swish")
    yield torch.ops.torchtest.swish
    meta.unregister("torchtest::swish")


@pytest.mark.parametrize("row", sorted(ROWS, key=repr), ids=repr)
def test_opcheck(row) -> None:
    assert opcheck(row) == {}


@pytest.mark.parametrize("row", sorted(ROWS, key=repr), ids=repr)
def test_same_as_meta(row) -> None:
    assert differences(row) == []


def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return ops.softmax(ops.gelu(ops.dense(x, w))) * torch.arange(5.0)


def reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.linear(x, w)).softmax(-1) * torch.arange(5.0)


def tensors(rows: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    x, w = torch.randn(rows, 8, generator=generator), torch.randn(5, 8, generator=generator)
    return x.requires_grad_(), w.requires_grad_()


def gradients(f: Callable[..., torch.Tensor], *args: torch.Tensor, create_graph: bool = False) -> tuple[Any, ...]:
    return torch.autograd.grad((f(*args) ** 2).sum(), args, create_graph=create_graph)


def test_eager_to_second_order() -> None:
    args = tensors()
    torch.testing.assert_close(model(*args), reference(*args))
    torch.testing.assert_close(gradients(model, *args), gradients(reference, *args))

    def norms(*xs: torch.Tensor, of: Callable[..., torch.Tensor]) -> torch.Tensor:
        return sum((g**2).sum() for g in gradients(of, *xs, create_graph=True))

    second = [torch.autograd.grad(norms(*args, of=f), args) for f in (model, reference)]
    torch.testing.assert_close(*second, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor", "meta"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(backend: str, dynamic: bool) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend=backend, dynamic=dynamic)
    for rows in (4, 6) if dynamic else (4,):  # without open sizes, another size compiles everything again
        args = tensors(rows)
        torch.testing.assert_close(compiled(*args), reference(*args))
        torch.testing.assert_close(gradients(compiled, *args), gradients(reference, *args))


def test_backend_meta_compiles_them_as_its_own() -> None:
    torch._dynamo.reset()
    report = meta.frontend.torch.explain(model, *tensors())
    assert ", 0 by torch" in str(report)


def test_compile_with_sizes_that_a_declaration_compares() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, y: ops.add(x, y), fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (3, 4):
        torch.testing.assert_close(compiled(torch.ones(rows, 2), torch.ones(rows, 2)), torch.full((rows, 2), 2.0))
    with pytest.raises(Exception, match="add"):
        compiled(torch.ones(3, 2), torch.ones(4, 2))


def test_export_and_back() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return ops.softmax(ops.add(x, 1.5), axis=0)

    x = torch.randn(3, 4)
    program = torch.export.export(Module(), (x,), dynamic_shapes={"x": {0: torch.export.Dim("n", min=2)}})
    assert [n.target for n in program.graph.nodes if n.op == "call_function"] == [ops.add.x2, ops.softmax.default]
    y = torch.randn(7, 4)
    torch.testing.assert_close(program.module()(y), y.softmax(0))
    np.testing.assert_allclose(from_exported(program)(meta.from_dlpack(y)).numpy(), y.softmax(0).numpy(), rtol=1e-5)


def test_data_dependent_size_is_a_new_one() -> None:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(lambda x: ops.argwhere(x) + 1, fullgraph=True, backend="aot_eager")
        x = torch.tensor([0.0, 2.0, 0.0, 3.0])
        torch.testing.assert_close(compiled(x), torch.argwhere(x) + 1)


def test_vmap() -> None:
    x, w = torch.randn(3, 4, 8, requires_grad=True), tensors()[1]
    batched = torch.vmap(model, in_dims=(0, None))
    torch.testing.assert_close(batched(x, w), reference(x, w))
    torch.testing.assert_close(gradients(batched, x, w), gradients(reference, x, w))
    compiled = torch.compile(batched, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, w), reference(x, w))


def test_transformations_of_torch_func() -> None:
    """Gradients, forward mode, and nests of both, per row and compiled."""
    x, w = (t.detach() for t in tensors())
    func: Any = torch.func

    def ours(x: torch.Tensor) -> torch.Tensor:
        return (model(x, w) ** 2).sum()

    def theirs(x: torch.Tensor) -> torch.Tensor:
        return (reference(x, w) ** 2).sum()

    for transform in (
        func.grad, func.jacrev, func.jacfwd, func.hessian, lambda f: func.jacrev(func.jacfwd(f)),
        lambda f: func.vmap(func.grad(f)), lambda f: func.grad(lambda x: func.grad(f)(x).square().sum()),
        lambda f: lambda x: func.jvp(f, (x,), (x.sin(),)),
        lambda f: torch.compile(func.grad(f), fullgraph=True, backend="aot_eager"),
    ):  # fmt: skip
        torch.testing.assert_close(transform(ours)(x), transform(theirs)(x), rtol=1e-4, atol=1e-6)


def test_forward_mode_of_lists_of_tensors_and_of_several_results() -> None:
    x, dx = torch.randn(6), torch.randn(6)
    joined = torch.func.jvp(lambda x: ops.concatenate([x, torch.ones(2), x * x]), (x,), (dx,))[1]
    torch.testing.assert_close(joined, torch.cat([dx, torch.zeros(2), 2 * x * dx]))
    values = torch.func.jvp(lambda x: ops.topk(x, 2)[0], (x,), (dx,))[1]
    torch.testing.assert_close(values, dx[torch.topk(x, 2).indices])


@pytest.mark.parametrize("order", ["forward, then reverse", "reverse, then forward"])
def test_dual_numbers_and_graphs(order: str) -> None:
    """Neither mode drops what the other one records."""
    x, dx = torch.randn(3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    y = x.tanh()
    with forward_ad.dual_level():
        if order == "forward, then reverse":
            leaf = x.clone().requires_grad_()
            tangent = forward_ad.unpack_dual(ops.tanh(forward_ad.make_dual(leaf, dx))).tangent
            (found,) = torch.autograd.grad(tangent.sum(), leaf)
        else:
            leaf = forward_ad.make_dual(x.clone().requires_grad_(), dx)
            (gradient,) = torch.autograd.grad(ops.tanh(leaf).sum(), leaf, create_graph=True)
            found = forward_ad.unpack_dual(gradient).tangent
    torch.testing.assert_close(found, -2 * y * (1 - y * y) * dx)


def test_forward_mode_of_an_operator_whose_gradient_reads_more() -> None:
    x = torch.randn(1, 2, 6, 6)
    found = torch.func.jvp(lambda x: ops.max_pool2d(x, [2, 2]), (x,), (x.sin(),))
    expected = torch.func.jvp(lambda x: F.max_pool2d(x, [2, 2]), (x,), (x.sin(),))
    torch.testing.assert_close(found, expected)


def test_autocast_follows_the_rule_of_the_operator() -> None:
    x, w = tensors()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        product = ops.dense(x, w)
        shares = ops.softmax(product)
    assert (product.dtype, shares.dtype) == (torch.bfloat16, torch.float32)
    shares[0, 0].backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.float32


def test_operator_of_a_package(swish) -> None:
    x = tensors()[0]
    torch.testing.assert_close(swish(x), F.silu(x))
    torch.testing.assert_close(gradients(swish, x), gradients(F.silu, x))
    assert set(torch.library.opcheck(swish.default, (x, 2.0)).values()) == {"SUCCESS"}


def test_gradients_do_not_share_memory() -> None:
    a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    ops.add(ops.reshape(a, [3]), b).sum().backward()
    a.grad.zero_()
    assert b.grad.tolist() == [1.0, 1.0, 1.0]


def test_gradient_reads_a_lazily_negated_tensor() -> None:
    x, factor = torch.ones(2, requires_grad=True), torch.imag(torch.tensor([1 + 2j, 3j]).conj())
    assert factor.is_neg()
    ops.multiply(x, factor).sum().backward()
    assert x.grad.tolist() == [-2.0, -3.0]


def test_results_of_views_are_copies() -> None:
    x = torch.zeros(4)
    ops.reshape(x, [2, 2]).fill_(1)
    assert x.tolist() == [0.0] * 4


def test_memory_that_needs_a_copy() -> None:
    x = torch.randn(4, 3)
    torch.testing.assert_close(ops.softmax(x.T), x.T.softmax(-1))
    z = torch.randn(3, dtype=torch.complex64)
    torch.testing.assert_close(ops.multiply(z.conj(), z), z.conj() * z)
    assert ops.softmax(torch.empty(0, 4)).shape == (0, 4)
    assert ops.take(torch.ones(3, 4), torch.empty(0, dtype=torch.int64), axis=0).shape == (0, 4)
    assert ops.softmax(torch.empty(2, 3, device="meta")).device.type == "meta"


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("adam", NotSupportedError, r"\[adam\] torch cannot call it: it writes m, v, x in place"),
        ("all_reduce", NotSupportedError, r"\[all_reduce\] torch cannot call it: it communicates"),
        ("shape", NotSupportedError, r"\[shape\] torch cannot call it: it returns sizes or numbers"),
        ("softmax", RegistryError, r"\[softmax\] it is registered already, as torch.ops.meta.softmax"),
        ("sotfmax", RegistryError, "'sotfmax'"),
    ],
)
def test_refused_names(name: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        meta.torch.register(name)


def test_namespaces_of_torch_are_refused() -> None:
    @meta.define("aten::torchtest", Schema("torchtest", Arg("x", Tensor)), reference=lambda x: x)
    def identity(x):
        return x

    with pytest.raises(RegistryError, match="torch reserves the namespace 'aten'"):
        meta.torch.register(identity)
    meta.unregister("aten::torchtest")


def test_operator_that_torch_has_already() -> None:
    @torch.library.custom_op("torchtest::taken", mutates_args=())
    def taken(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @meta.define("torchtest::taken", Schema("taken", Arg("x", Tensor)), reference=lambda x: x)
    def ours(x):
        return x

    with pytest.raises(RegistryError, match="torch has an operator torchtest::taken already"):
        meta.torch.register(ours)
    assert "torchtest::taken" not in registration._registered
    meta.unregister("torchtest::taken")


def test_wrong_arguments() -> None:
    with pytest.raises(AxisError, match=r"\[softmax\] axis 4 is out of range"):
        ops.softmax(torch.ones(3), 4)
    with pytest.raises(TypeInferenceError, match=r"\[softmax\] 'x' has dtype int64"):
        ops.softmax(torch.arange(3))
    with pytest.raises(NotImplementedError, match=r"meta::softmax.*Sparse"):
        ops.softmax(torch.eye(3).to_sparse())
    with pytest.raises(GradientError, match="argument 'x1' has no gradient"):
        ops.igamma(torch.ones(3, requires_grad=True), torch.ones(3)).sum().backward()


class Wrapper(torch.Tensor):
    """A subclass that handles every operator itself, as DTensor does."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(f"{cls.__name__} has no rule for {func}")


def test_subclasses_are_asked_by_name() -> None:
    x = torch.Tensor._make_subclass(Wrapper, torch.ones(3))
    with pytest.raises(NotImplementedError, match=r"Wrapper has no rule for meta\.softmax\.default"):
        ops.softmax(x)


def test_meta_imports_torch_at_the_first_register() -> None:
    code = "import sys, meta; meta.torch; assert 'torch' not in sys.modules; meta.torch.register; import torch"
    subprocess.run([sys.executable, "-c", code], check=True)


THREADS = """
import os, threading
import meta, torch

failures = []

def register():
    try:
        meta.torch.register()
    except BaseException as error:
        failures.append(error)

threads = [threading.Thread(target=register) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, failures
x = torch.randn(3, 4)
y = torch.ops.meta.softmax(x)
child = os.fork()
if not child:
    same = torch.equal(torch.ops.meta.softmax(x), y) and torch.ops.meta.gelu(x).shape == (3, 4)
    os._exit(0 if same else 1)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_registration_in_threads_and_after_a_fork() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", THREADS], check=True)


CACHED = """
import meta, torch
meta.torch.register("rms_norm", "dense")
assert torch.ops.meta.reshape(torch.ones(4), [2, 2]).shape == (2, 2)  # made at its first use
assert not hasattr(torch.ops.meta, "adam") and not hasattr(torch.ops.meta, "nonsense")
x, w = torch.ones(2, 3, 4, requires_grad=True), torch.ones(5, 4, requires_grad=True)
step = torch.compile(lambda x, w: torch.ops.meta.dense(torch.ops.meta.rms_norm(x), w).square().sum(), fullgraph=True)
step(x, w).backward()
print(float(w.grad.sum()))
"""


def test_a_second_process_runs_the_code_in_the_cache_of_inductor(tmp_path: Path) -> None:
    """Which calls operators that a gradient called in the first one."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", CACHED], env=environment, capture_output=True, text=True, check=False
        )
        for _ in range(2)
    ]
    assert [run.returncode for run in runs] == [0, 0], [run.stderr[-2000:] for run in runs]
    assert runs[0].stdout == runs[1].stdout
