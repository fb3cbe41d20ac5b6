"""Matrix products by the BLAS that torch has loaded, called without Python.

A call of ATen from a program costs a call of Python, a view of each tensor and ATen's dispatch: 50 to 100 us in a step
of training, in which other kernels have emptied the caches. The functions in products.ll take the tensors of TVM and
call `sgemm_` and `dgemm_`, as ATen does itself.
"""

from __future__ import annotations

import ctypes
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from meta.backend.tvm import library
from meta.cache import default_cache

if TYPE_CHECKING:
    from collections.abc import Callable

    from meta.ir.expr import CallInfo

_SOURCE: Final = Path(__file__).with_suffix(".ll")
_TYPES: Final = {"float32": ("single", 4), "float64": ("double", 8)}
"""dtype -> the name of its functions in products.ll, bytes of an element."""


def matrix_product(
    call: CallInfo, *, transposed_a: bool = False, transposed_b: bool = False, has_bias: bool = False
) -> Callable[..., Any] | None:
    """`kernel(a, b, out)` on raw tensors, out = a @ b; with a bias `kernel(a, b, bias, out)`, out = a @ b + bias.

    None where there is no such function: for GPUs, other dtypes, unknown sizes, b of other ranks than two, and a
    transposed a of another rank."""
    largest = (1 << 31) - 1  # The largest size that every BLAS takes.
    types = [*call.tensors(), *call.outputs()]
    a, b = types[:2]
    if call.device.kind != "cpu" or a.dtype not in _TYPES or any(t.dtype != a.dtype for t in types):
        return None
    if b.ndim != 2 or a.ndim < 2 or (transposed_a and a.ndim != 2) or (has_bias and types[2].ndim != 1):
        return None
    if not all(isinstance(t.size, int) and t.size <= largest and t.is_static for t in types):
        return None
    if has_bias and types[2].shape[0] != types[-1].shape[-1]:
        return None
    torch.get_num_threads()  # has torch tell the BLAS how many threads there are
    module = _module()
    return None if module is None else module[_name(_TYPES[a.dtype][0], transposed_a, transposed_b, has_bias)]


def _name(prefix: str, *flags: bool) -> str:
    return prefix + "_" + "".join("ft"[flag] for flag in flags)


@cache
def _module() -> Any | None:
    """The functions of products.ll, connected with torch's BLAS; None if torch has none that can be called so, or there
    is no space for the code. Two threads may make one each."""
    addresses = _blas()
    if addresses is None:
        return None
    exports = (_export(*entry, flags) for entry in _TYPES.values() for flags in product((False, True), repeat=3))
    try:
        module = library.assembled("products", "\n".join([_SOURCE.read_text(), *exports]))
    except OSError as error:
        if (disk := default_cache()) is not None:
            disk.report(error)
        return None
    module["configure"](*addresses)
    return module


def _export(prefix: str, size: int, flags: tuple[bool, ...]) -> str:
    """An exported function of products.ll. flags: whether a and b are transposed, and whether there is a bias."""
    values = ", ".join(f"i1 {int(flag)}" for flag in flags)
    return f"""
define i32 @__tvm_ffi_{_name(prefix, *flags)}(ptr %self, ptr %args, i32 %count, ptr %result) {{
  %gemm = load ptr, ptr @{prefix}
  call void @multiply(ptr %args, ptr %gemm, ptr @one_{prefix}, ptr @zero_{prefix}, i64 {size}, {values})
  ret i32 0
}}"""


def _blas() -> tuple[int, ...] | None:
    """The addresses of sgemm_ and dgemm_ in torch's libraries."""
    scope = ctypes.CDLL(torch._C.__file__)
    names = "sgemm_", "dgemm_"
    if not all(hasattr(scope, name) for name in names):
        return None
    return tuple(ctypes.cast(getattr(scope, name), ctypes.c_void_p).value or 0 for name in names)
