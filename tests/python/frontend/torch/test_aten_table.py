"""Every row of the table names an operator of ATen and a function of meta that takes its arguments."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.errors import ArgumentError, NotSupportedError
from meta.frontend.torch import aten
from meta.frontend.torch.aten._row import NUMBER_FIRST, PLACEMENT, TENSOR_PAIRS, Direct, direct, runnable

_OUTPUTS = {"out", "out0", "out1", "indices", "values", "grad_input"}


def _schemas(name: str) -> list[Any]:
    packet = getattr(torch.ops.aten, name)
    return [getattr(packet, overload)._schema for overload in packet.overloads()]


def _problem(row: Any, schema: Any) -> str:
    """Why the row's function does not take the arguments of an overload; "" if it does."""
    arguments = [
        a for a in schema.arguments if not (a.kwarg_only and a.alias_info is not None and a.alias_info.is_write)
    ]
    positional = [a.name for a in arguments if not a.kwarg_only]
    named = [a.name for a in arguments if a.kwarg_only and a.name not in PLACEMENT]
    positional = [name for name in positional if name not in PLACEMENT]
    target = row.resolve() if isinstance(row, Direct) else row
    parameters = list(inspect.signature(target).parameters.values())
    if isinstance(row, Direct):
        positional, named = list(map(row.rename, positional)), list(map(row.rename, named))
        order = [p.name for p in parameters]
        if order[: len(positional)] != positional:
            return f"{positional} for {order}"
    try:
        inspect.signature(target).bind(*positional, **dict.fromkeys(named))
    except TypeError as error:
        return str(error)
    return ""


def test_rows_fit_an_overload() -> None:
    problems: dict[str, list[str]] = {}
    for name, row in aten.rows().items():
        assert hasattr(torch.ops.aten, name), f"{name} is not an operator of ATen"
        mismatches = [_problem(row, schema) for schema in _schemas(name)]
        if "" not in mismatches:
            problems[name] = mismatches
    assert problems == {}


def test_torch_decomposes_what_the_table_lacks_and_recurrent_layers() -> None:
    table = torch.export.default_decompositions()
    kept = {operator.name().removeprefix("aten::").partition(".")[0] for operator in aten.without_rows(table)}
    assert kept >= {"lstm", "gru_cell"}
    assert not kept & {"scaled_dot_product_attention", "hardswish", "hardswish_", "layer_norm"}


def test_a_row_in_another_order_is_noticed() -> None:
    (schema,) = [s for s in _schemas("conv2d") if s.overload_name == ""]
    assert "bias" in _problem(direct("conv2d", weight="w"), schema)


def test_dtypes_devices_and_sizes_of_torch_are_converted() -> None:
    ones = runnable("ones", aten.rows()["ones"])
    x = ones(torch.Size([2]), dtype=torch.bfloat16, device=torch.device("cpu"), layout=torch.strided, pin_memory=False)
    assert (x.shape, x.dtype) == ((2,), "bfloat16")
    with pytest.raises(ArgumentError, match=r"\[aten\] an argument is a torch.Tensor; expected arrays, numbers and"):
        ones(torch.ones(2))


def test_rows_run_on_arrays_and_in_traces() -> None:
    addmm = aten.find("sub")
    assert addmm is not None
    x = meta.array([1.0, 2.0])
    assert addmm(x, x, alpha=3).tolist() == [-2.0, -4.0]
    assert meta.trace(lambda a: addmm(a, a, alpha=3))(x).tolist() == [-2.0, -4.0]
    assert aten.find("no_such_operator") is None


@pytest.mark.parametrize("name", sorted((NUMBER_FIRST | TENSOR_PAIRS) & set(aten.rows())))
def test_numbers_are_operands_where_an_overload_has_them(name: str) -> None:
    kinds = [[str(a.type) for a in s.arguments[:2] if not a.kwarg_only] for s in _schemas(name)]
    assert (["Scalar", "Tensor"] in [k[:2] for k in kinds] or ["number", "Tensor"] in kinds) == (name in NUMBER_FIRST)
    if name in TENSOR_PAIRS:
        assert all(k[1] == "Tensor" for k in kinds if k[0] == "Tensor")


def test_numbers_in_place_of_tensors_are_refused() -> None:
    x = meta.array([1.0, 2.0])
    with pytest.raises(
        ArgumentError, match=r"\[maximum\] the second operand is 2; expected a tensor; use meta.array\(x\)"
    ):
        aten.find("maximum", strict=True)(x, 2)
    with pytest.raises(ArgumentError, match=r"\[eq\] the first operand is 2; expected a tensor; use meta.array\(x\)"):
        aten.find("eq", strict=True)(2, x)
    with pytest.raises(ArgumentError, match=r"\[pow\] the first operand is 2; expected a tensor"):
        aten.find("pow", strict=True)(2, 3)
    assert aten.find("pow", strict=True)(2, x).tolist() == [2.0, 4.0]
    assert aten.find("sub")(2, x).tolist() == [1.0, 0.0]  # as graphs write 2 - x


def test_the_table_needs_no_torch() -> None:
    code = "import sys; from meta.frontend.torch import aten; assert aten.names(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_gradients_of_rows_in_traces_equal_gradients_of_arrays() -> None:
    """Rows that are gradients of other rows: of a view, and of an activation."""

    select, softplus = aten.find("select_backward"), aten.find("softplus_backward")
    assert select is not None
    assert softplus is not None

    def gradients(dy: Any, x: Any) -> Any:
        return select(dy, (2, 4, 3), 1, 2), softplus(dy, x, 2.0, 20.0)

    arguments = [meta.array(np.linspace(-1, 1, 6).reshape(2, 3)), meta.array(np.linspace(-2, 3, 6).reshape(2, 3))]
    expected = gradients(*arguments)
    for x, y in zip(meta.vm.compile(meta.trace(gradients))(*arguments), expected, strict=True):
        assert y.numpy().any()
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-6)


_Z = torch.complex(torch.linspace(-2, 3, 6).reshape(2, 3), torch.linspace(1, -1, 6).reshape(2, 3))
_KERNEL = torch.complex(torch.linspace(0, 1, 12).reshape(2, 3, 2), torch.linspace(1, -3, 12).reshape(2, 3, 2))
_WRAPPED: dict[str, tuple[Any, ...]] = {
    "arange": ((5, -2, -1), {"dtype": torch.uint8}),
    "scalar_tensor": ((-5,), {"dtype": torch.uint8}),
    "index_add": ((torch.ones(3, dtype=torch.uint8), 0, torch.tensor([1]), torch.tensor([3], dtype=torch.uint8)),
                  {"alpha": -2}),
    "sum_to_size": ((torch.ones((2, 3), dtype=torch.bool), (1, 3)), {}),
    "sgn": ((torch.tensor([True, False]),), {}),
    "sign": ((torch.tensor([True, False]),), {}),
    "square": ((torch.tensor([True, False]),), {}),
}  # fmt: skip
_COMPLEX: dict[str, tuple[Any, ...]] = {
    "argwhere": ((_Z - _Z[0, 0],), {}),
    "conv1d": ((_Z.T.contiguous(), _KERNEL, torch.tensor([1j, 2.0])), {"padding": 1}),
    "conv_transpose1d": ((_Z[None], _KERNEL, None), {"stride": 2}),
    "l1_loss": ((_Z, _Z.flip(0)), {}),
    "lerp": ((_Z, _Z.flip(0), _Z), {}),
    "linear": ((_Z, _Z, torch.tensor([1j, 2.0])), {}),
    "linspace": ((1 - 2j, 3j, 5), {}),
    "logaddexp": ((_Z * 200, _Z.flip(0) * 200), {}),
    "logcumsumexp": ((_Z * 7, 1), {}),
    "logspace": ((-1.0, 2.0, 4), {"dtype": torch.complex64}),
    "logsumexp": ((_Z * 200, (1,)), {}),
    "renorm": ((_Z, 2.0, 0, 1.5), {}),
    "rms_norm": ((_Z, (3,), _Z[0]), {}),
    "sigmoid": ((_Z,), {}),
    "sinc": ((_Z - _Z[0, 0],), {}),
}


@pytest.mark.parametrize("name", [*_WRAPPED, *_COMPLEX])
def test_complex_numbers_and_integers_that_wrap_around(name: str) -> None:
    args, kwargs = (_WRAPPED | _COMPLEX)[name]
    function = getattr(torch.nn.functional if name in ("l1_loss", "rms_norm") else torch, name, None)
    expected = (function or getattr(torch.ops.aten, name))(*args, **kwargs)
    row = aten.find(name)
    assert row is not None
    arguments = [meta.array(a.numpy()) if isinstance(a, torch.Tensor) else a for a in args]
    actual = row(*arguments, **kwargs)
    assert (actual.dtype, actual.shape) == (str(expected.dtype).removeprefix("torch."), tuple(expected.shape))
    np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["rand_like", "randn_like", "uniform", "normal_functional"])
def test_random_complex_numbers_have_torchs_moments(name: str) -> None:
    meta.random.seed(0)
    row = aten.find(name)
    assert row is not None
    numbers = row(meta.zeros((40_000,), "complex64")).numpy()
    expected = (0.5 + 0.5j, 1 / 6) if name in ("rand_like", "uniform") else (0, 1)
    np.testing.assert_allclose([numbers.mean(), numbers.var()], expected, atol=0.03)
    assert abs(np.cov(numbers.real, numbers.imag)[0, 1]) < 0.01


_M = torch.linspace(-1, 2, 18, dtype=torch.float64).reshape(2, 3, 3).sin() + torch.eye(3, dtype=torch.float64) * 2
_THETA = torch.linspace(-1, 1, 12).reshape(2, 2, 3)
_LIBRARY: dict[str, tuple[tuple[Any, ...], int]] = {
    "_is_all_true": ((torch.tensor([True, False]),), 1),
    "_is_any_true": ((torch.tensor([True, False]),), 1),
    "_linalg_det": ((_M,), 1),
    "_linalg_eigh": ((_M, "L", False), 2),
    "_linalg_slogdet": ((_M,), 2),
    "_linalg_solve_ex": ((_M, _M[:, :, :2].contiguous()), 1),
    "_linalg_svd": ((_M, False, False), 3),
    "_upsample_bicubic2d_aa_backward": ((torch.ones(1, 2, 3, 3), [3, 3], [1, 2, 7, 5], False, None, None), 1),
    "_upsample_bilinear2d_aa_backward": ((torch.ones(1, 2, 3, 3), [3, 3], [1, 2, 7, 5], True, None, None), 1),
    "affine_grid_generator": ((_THETA, [2, 1, 3, 4], False), 1),
    "linalg_householder_product": ((_M, _M[:, 0, :2].contiguous()), 1),
    "unique_dim_consecutive": ((torch.tensor([[1, 1, 2], [3, 3, 4]]), 1, True, True), 3),
}  # fmt: skip


@pytest.mark.parametrize("name", _LIBRARY)
def test_first_results_of_operators_below_torchs_functions(name: str) -> None:
    args, count = _LIBRARY[name]
    expected = getattr(torch.ops.aten, name)(*args)
    row = aten.find(name)
    assert row is not None
    actual = row(*[meta.array(a.numpy()) if isinstance(a, torch.Tensor) else a for a in args])
    pairs = zip(actual, expected, strict=True) if isinstance(expected, tuple) else [(actual, expected)]
    for mine, reference in list(pairs)[:count]:
        assert (mine.dtype, mine.shape) == (str(reference.dtype).removeprefix("torch."), tuple(reference.shape))
        np.testing.assert_allclose(mine.numpy(), reference.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_bool", [False, True])
def test_attention_of_cudnn_with_a_mask(is_bool: bool) -> None:
    """The rows of cuDNN's operators, which torch has for CUDA alone, against its function."""
    q, k, v, dy = (torch.randn(2, 4, 5, 8, dtype=torch.float64, requires_grad=True) for _ in range(4))
    mask = torch.rand(2, 1, 5, 5) < 0.7 if is_bool else torch.randn(2, 1, 5, 5, dtype=torch.float64)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=0.3)
    gradients = torch.autograd.grad(expected, (q, k, v), dy)
    ours = [meta.array(x.detach().numpy()) for x in (q, k, v, dy, mask)]
    rows = aten.attention
    y, lse, *_ = rows._scaled_dot_product_cudnn_attention(*ours[:3], ours[4], True, scale=0.3)
    assert lse.shape == (2, 4, 5, 1)
    results = rows._scaled_dot_product_cudnn_attention_backward(
        ours[3], *ours[:3], y, lse, None, None, ours[4], None, None, 5, 5, 0.0, False, scale=0.3
    )
    for x, theirs in zip((y, *results), (expected, *gradients), strict=True):
        np.testing.assert_allclose(x.numpy(), theirs.detach().numpy(), rtol=1e-9, atol=1e-12)


def test_affine_grids_of_volumes_with_single_elements() -> None:
    theta, size = torch.linspace(-1, 1, 24).reshape(2, 3, 4), [2, 1, 1, 3, 2]
    row = aten.find("affine_grid_generator")
    assert row is not None
    for aligned in (True, False):
        expected = torch.ops.aten.affine_grid_generator(theta, size, aligned)
        np.testing.assert_allclose(row(meta.array(theta.numpy()), size, aligned).numpy(), expected.numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "args", "quantiles"),
    [
        ("cauchy", (1.0, 2.0), (-1.0, 1.0, 3.0)),
        ("geometric", (0.3,), (1.0, 2.0, 4.0)),
        ("log_normal", (1.0, 2.0), (0.7055, 2.7183, 10.474)),
    ],
)
def test_quantiles_of_random_numbers(name: str, args: tuple[float, ...], quantiles: tuple[float, ...]) -> None:
    meta.random.seed(1)
    row = aten.find(name)
    assert row is not None
    numbers = row(meta.zeros((20_000,)), *args).numpy()
    np.testing.assert_allclose(np.quantile(numbers, (0.25, 0.5, 0.75)), quantiles, rtol=0.08)


def test_slopes_that_were_drawn_are_returned() -> None:
    x = meta.array(np.linspace(-1, 1, 40))
    row = aten.find("rrelu_with_noise_functional")
    assert row is not None
    y, slopes = (v.numpy() for v in row(x, meta.zeros_like(x), 0.2, 0.3, True))
    np.testing.assert_allclose(y, x.numpy() * slopes)
    assert (slopes[20:] == 1).all()
    assert ((slopes[:20] >= 0.2) & (slopes[:20] <= 0.3)).all()
    assert len(set(slopes[:20])) == 20


def test_cumulative_logarithms_of_complex_numbers_keep_torchs_branch_and_small_elements() -> None:
    row = aten.find("logcumsumexp")
    assert row is not None
    generator = torch.Generator().manual_seed(0)
    random = torch.randn((2, 50, 7, 2), generator=generator, dtype=torch.float64)
    ties = torch.tensor([[1 + 3j, 1 - 3j], [-800.0, 1j], [1j, 1j], [-math.inf, -math.inf], [-math.inf, 2j]])
    for x in (torch.complex(random[0] * 3, random[1] * 9).movedim(2, 1).reshape(100, 7), ties.to(torch.complex128)):
        actual = row(meta.array(x.numpy()), 1)
        np.testing.assert_allclose(actual.numpy(), torch.logcumsumexp(x, 1).numpy(), rtol=1e-9, atol=1e-9)
    x = meta.array([1j, 1j, 1 + 1j])
    x.requires_grad = True
    (gradient,) = meta.autograd.grad([row(x, 0)], [x], [meta.array(np.ones(3, "complex64"))])
    other = torch.tensor([1j, 1j, 1 + 1j], requires_grad=True)
    torch.logcumsumexp(other, 0).backward(torch.ones(3, dtype=torch.complex64))
    assert other.grad is not None
    np.testing.assert_allclose(gradient.numpy(), other.grad.resolve_conj().numpy(), rtol=1e-5)


@pytest.mark.parametrize("name", ["upsample_bilinear2d", "_upsample_bilinear2d_aa", "upsample_bicubic2d",
                                  "upsample_nearest2d", "_upsample_nearest_exact2d"])  # fmt: skip
def test_given_scales_decide_where_elements_are_read(name: str) -> None:
    """Also where the size of the result is not the product of the scales and the sizes of the operand."""
    x, row = torch.randn(1, 2, 10, 20, dtype=torch.float64), aten.find(name)
    assert row is not None
    corners: tuple[bool, ...] = () if "nearest" in name else (False,)
    for size, scales in (([3, 4], (1.7, 0.9)), ([17, 18], (1.7, 0.9)), ([5, 10], (0.5, 0.5)), ([4, 10], (0.5, 0.5))):
        expected = getattr(torch.ops.aten, name)(x, size, *corners, *scales)
        actual = row(meta.array(x.numpy()), size, *corners, *scales)
        np.testing.assert_allclose(actual.numpy(), expected.numpy(), atol=1e-12)
    with pytest.raises(NotSupportedError, match=r"the size is \(30, 40\), with scales \(1.7, 0.9\)"):
        row(meta.array(x.numpy()), [30, 40], *corners, 1.7, 0.9)


def test_linear_of_one_output() -> None:
    x, w = torch.randn(3, 4), torch.randn(4)
    row = aten.find("linear")
    assert row is not None
    result = row(*(meta.array(t.numpy()) for t in (x, w)))
    np.testing.assert_allclose(result.numpy(), torch.nn.functional.linear(x, w).numpy(), rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize("name", ["linspace", "logspace"])
def test_ranges_of_integers_begin_and_end_at_integers(name: str, dtype: torch.dtype) -> None:
    row = aten.find(name)
    assert row is not None
    for start, end, steps in ((2.3, 0, 50), (1.9, 0.2, 7), (0, 2.99, 5), (2.2, 2.9, 1), (0.7, 0.2, 0)):
        expected = getattr(torch, name)(start, end, steps, dtype=dtype)
        assert np.array_equal(row(start, end, steps, dtype=dtype).numpy(), expected.numpy())


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.float32, None])
@pytest.mark.parametrize("arguments", [(3.1,), (0.5, 3.1), (0, 3.9, 1.9), (5, 0.5, -1.5), (2.7, 6.2)])
def test_ranges_with_fractions(arguments: tuple[float, ...], dtype: Any) -> None:
    ours = aten.find("arange", strict=True)(*arguments, dtype=dtype)
    expected = torch.arange(*arguments, dtype=dtype)
    assert (str(ours.dtype), ours.tolist()) == (str(expected.dtype).removeprefix("torch."), expected.tolist())


def test_vdot_conjugates() -> None:
    x, y = torch.tensor([1 + 2j, 3j]), torch.tensor([2 - 1j, 1 + 1j])
    ours = aten.find("vdot", strict=True)(meta.from_dlpack(x), meta.from_dlpack(y))
    assert ours.item() == torch.vdot(x, y).item()


def test_results_have_the_shapes_and_dtypes_of_torch() -> None:
    weight_norm, repeat = aten.find("_weight_norm_interface"), aten.find("repeat_interleave")
    backward = aten.find("_weight_norm_interface_backward")
    assert weight_norm is not None
    assert backward is not None
    assert repeat is not None
    for dim, shape in ((1, (3,)), (1, (1, 3)), (0, (4, 1))):
        v, g = torch.randn(4, 3), torch.rand(shape) + 1
        if len(shape) == 2:
            expected = torch._weight_norm_interface(v, g, dim)
        else:
            norm = v.norm(dim=0)
            expected = v * (g / norm), norm
        result = weight_norm(meta.array(v.numpy()), meta.array(g.numpy()), dim)
        for a, b in zip(result, expected, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)
        gradients = backward(result[0], meta.array(v.numpy()), meta.array(g.numpy()), result[1], dim)
        assert [x.shape for x in gradients] == [(4, 3), shape]
    for dtype in ("int32", "int64"):
        result = repeat(meta.array([1, 2], dtype=dtype))
        assert (result.tolist(), str(result.dtype)) == ([0, 1, 1], dtype)


@pytest.mark.parametrize("name", ["add", "sub", "rsub"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sums_of_scaled_halves_are_rounded_once(name: str, dtype: str) -> None:
    x, y = (torch.linspace(a, b, 500).sin().to(getattr(torch, dtype)) for a, b in ((0, 20), (3, 40)))
    row = aten.find(name)
    assert row is not None
    for alpha in (-111.999, 0.3, 1):
        expected = getattr(torch, name)(x, y, alpha=alpha).float()
        exact = getattr(torch, name)(x.double(), y.double(), alpha=alpha)
        result = row(*(meta.array(t.float().numpy()).cast(dtype) for t in (x, y)), alpha=alpha).cast("float64").numpy()
        own, error = (np.abs(r - exact.numpy()).max() for r in (expected.numpy(), result))
        assert error <= own
