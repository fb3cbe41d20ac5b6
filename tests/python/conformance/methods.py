"""Names of OpInfo that are no names of ATen: methods, Python operators, and functions whose Python arguments differ."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

import meta
from meta.dtype import is_complex
from meta.frontend.torch import aten
from meta.schema._dsl import TensorLike

Call = Callable[..., Any]
CALLS: dict[str, Call] = {}


def row(name: str) -> Call | None:
    """The row of ATen's operator that a name of OpInfo means, None if there is none."""
    base = name.removeprefix("nn.functional.")
    for prefix in ("linalg.", "special.", "fft."):
        base = base.replace(prefix, prefix.replace(".", "_"))
    row = aten.find(base, strict=True)
    return None if row is None else _without_requires_grad(row)


def _without_requires_grad(function: Call) -> Call:
    """Factories of torch's Python API take `requires_grad`, which ATen's operators do not."""

    def run(*args: Any, requires_grad: bool = False, **kwargs: Any) -> Any:
        out = function(*args, **kwargs)
        if requires_grad:
            out.requires_grad = True
        return out

    return run


def need(name: str) -> Call:
    """The row of ATen's operator `name`. Raises NotImplementedError when it is called and the table lacks it."""
    row = aten.find(name, strict=True)
    if row is not None:
        return row

    def missing(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"the table has no {name}")

    return missing


def call(*names: str) -> Callable[[Call], Call]:
    """Enter the decorated function under the names of OpInfo."""

    def enter(function: Call) -> Call:
        for name in names:
            CALLS[name] = function
        return function

    return enter


def _enter_casts() -> None:
    dtypes = {
        "bfloat16": torch.bfloat16, "bool": torch.bool, "byte": torch.uint8, "char": torch.int8,
        "double": torch.float64, "float": torch.float32, "half": torch.float16, "int": torch.int32, "long": torch.int64,
        "short": torch.int16,
    }  # fmt: skip
    for name, dtype in dtypes.items():
        CALLS[name] = lambda x, *, memory_format=None, _dtype=dtype: need("to")(x, _dtype)


def _reflected(name: str, function: Call) -> Call:
    """The method of a tensor that Python calls for its right operand."""

    def run(x: Any, other: Any) -> Any:
        if not isinstance(x, TensorLike):
            raise TypeError(f"{name} of a {type(x).__name__}")
        return function(other, x)

    return run


def _enter_operators() -> None:
    reflected = {
        "__radd__": operator.add, "__rdiv__": operator.truediv, "__rmul__": operator.mul, "__rand__": operator.and_,
        "__ror__": operator.or_, "__rxor__": operator.xor, "__rmatmul__": operator.matmul, "__rmod__": operator.mod,
        "__rpow__": operator.pow, "__rsub__": operator.sub,
    }  # fmt: skip
    for name, function in reflected.items():
        CALLS[name] = _reflected(name, function)
    CALLS["__getitem__"] = lambda x, index: x[index]


_enter_casts()
_enter_operators()

CALLS["div.no_rounding_mode"] = CALLS["div.trunc_rounding"] = CALLS["div.floor_rounding"] = need("div")
CALLS["nonzero"] = lambda x, as_tuple=False: need("nonzero_numpy" if as_tuple else "nonzero")(x)
CALLS["sum_to_size"] = lambda x, *size: need("sum_to_size")(x, size[0] if isinstance(size[0], (list, tuple)) else size)
CALLS["where"] = lambda x, condition, other: need("where")(condition, x, other)
CALLS["nn.functional.logsigmoid"] = need("log_sigmoid")
CALLS["zero_"] = need("zero")
CALLS["T"] = need("numpy_T")
CALLS["max.binary"] = need("maximum")
CALLS["min.binary"] = need("minimum")
CALLS["slice"] = need("slice")
CALLS["special.polygamma"] = lambda x, n: need("polygamma")(n, x)


@call("nn.functional.softsign")
def softsign(x: Any) -> Any:
    return x / (abs(x) + 1) if is_complex(x.dtype) else meta.softsign(x)


@call("nn.functional.tanhshrink")
def tanhshrink(x: Any) -> Any:
    return x - meta.tanh(x) if is_complex(x.dtype) else meta.tanhshrink(x)


@call("addmm.decomposed")
def addmm(x: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return need("addmm")(x, mat1, mat2, beta=beta, alpha=alpha)


@call("tensordot")
def tensordot(a: Any, b: Any, dims: Any = 2) -> Any:
    if isinstance(dims, int):
        return need("tensordot")(a, b, list(range(a.ndim - dims, a.ndim)), list(range(dims)))
    return need("tensordot")(a, b, *dims)


@call("lu")
def lu(x: Any, pivot: bool = True, get_infos: bool = False) -> Any:
    factors, pivots, info = need("linalg_lu_factor_ex")(x, pivot=pivot)
    return (factors, pivots, info) if get_infos else (factors, pivots)


@call("linalg.lstsq.grad_oriented")
def lstsq(a: Any, b: Any, driver: str | None) -> Any:
    return need("linalg_lstsq")(a, b, driver=driver)[:2]


@call("linalg.pinv.singular")
def pinv_of_product(a: Any, b: Any) -> Any:
    return need("linalg_pinv")(meta.matmul(a, b, False, True))


@call("einsum")
def einsum(operands: Any, equation: str) -> Any:
    return need("einsum")(equation, operands)


@call("to")
def to(x: Any, *args: Any, **kwargs: Any) -> Any:
    named = {"device": None, "dtype": None, "other": None}
    for value in args:
        kind = "dtype" if isinstance(value, torch.dtype) else "device" if isinstance(value, (str, torch.device)) else ""
        kind = kind or ("" if isinstance(value, bool) else "other")
        if kind:
            named[kind] = value
    named |= {name: value for name, value in kwargs.items() if name in named}
    if named["other"] is not None:
        return need("to")(x, named["other"])
    return need("to")(x, dtype=named["dtype"], device=named["device"])


@call("unique")
def unique(
    x: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Results that are not asked for are left out."""
    results = need("_unique2")(x) if dim is None else need("unique_dim")(x, dim)
    return _chosen(results, return_inverse, return_counts)


@call("unique_consecutive")
def unique_consecutive(
    x: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    return _chosen(need("unique_consecutive")(x, dim=dim), return_inverse, return_counts)


def _chosen(results: Any, return_inverse: bool, return_counts: bool) -> Any:
    values, inverse, counts = results
    rest = [part for part, wanted in ((inverse, return_inverse), (counts, return_counts)) if wanted]
    return (values, *rest) if rest else values


@call("normal.in_place")
def normal_in_place(x: Any, mean: Any = 0.0, std: Any = 1.0) -> Any:
    return need("normal_functional")(x, mean, std)


@call("meshgrid.variadic_tensors")
def meshgrid(first: Any, *rest: Any, indexing: str = "ij") -> Any:
    return need("meshgrid")((first, *rest), indexing=indexing)


def _variadic(name: str) -> Call:
    def function(first: Any, *rest: Any) -> Any:
        return need(name)(first if isinstance(first, (list, tuple)) else (first, *rest))

    return function


for _name in ("broadcast_tensors", "block_diag", "cartesian_prod"):
    CALLS[_name] = _variadic(_name)


def _one_or_several(name: str) -> Call:
    return lambda first, *rest: need(name)((first, *rest) if rest else first)


for _name in ("atleast_1d", "atleast_2d", "atleast_3d"):
    CALLS[_name] = _one_or_several(_name)
