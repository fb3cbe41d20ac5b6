"""Creation functions. dtype None: float32, or the dtype of the data; device None: the CPU, or the device of `x`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import meta
from meta import dtype as dtypes
from meta._generated.methods import Tensor
from meta.device import CPU
from meta.errors import TypeInferenceError
from meta.schema._dsl import TensorLike


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
    """`obj` (numbers, nested lists, arrays, DLPack exporters) as an array; an array itself if nothing changes.

    copy: None to copy if necessary. Raises TypeInferenceError, a ValueError, if False would need a copy."""
    if isinstance(obj, TensorLike):
        x: Any = obj
        same = (dtype is None or dtypes.canonical(dtype) == x.dtype) and device in (None, x.device, str(x.device))
        if copy is False and not same:
            raise _copy_needed("another dtype or device")
        return x.to(device=device, dtype=dtype) if not (copy and same) else meta.copy(x)
    out = meta.asarray(obj, dtype, device, copy=bool(copy))
    if copy is False and not _shares_memory(obj, out):
        raise _copy_needed(type(obj).__name__)
    return out


def _shares_memory(obj: Any, out: Any) -> bool:
    dlpack_cpu = 1  # kDLCPU.
    import numpy as np

    if not hasattr(obj, "__dlpack__"):
        return False
    if out.device is not CPU:
        return int(obj.__dlpack_device__()[0]) != dlpack_cpu
    return out.size == 0 or np.shares_memory(np.from_dlpack(obj), out.numpy())


def _copy_needed(what: str) -> TypeInferenceError:
    return TypeInferenceError("asarray", f"{what} needs a copy, and copy is False", "copy=None or True")


def from_dlpack(x: object, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """An array over the memory of a DLPack exporter, or over a copy of it (see meta.from_dlpack)."""
    out = meta.from_dlpack(x, copy=bool(copy))
    return out if device is None else out.to(device=device)


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: object = None, device: object = None
) -> Any:
    """Numbers from start up to stop, or from 0 up to `start` without one; int64 if all are ints, else float32."""
    return meta.arange(start, stop, step, dtype, _placed(device))


def linspace(
    start: float, stop: float, /, num: int, *, dtype: object = None, device: object = None, endpoint: bool = True
) -> Any:
    """`num` numbers at equal distances from start to stop, which is left out without `endpoint`."""
    dtype = "float32" if dtype is None else dtype
    if endpoint:
        return meta.linspace(start, stop, num, dtype, _placed(device))
    return meta.linspace(start, stop, num + 1, dtype, _placed(device))[:num]


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: object = None, device: object = None) -> Any:
    """A matrix with ones on diagonal k."""
    columns = n_rows if n_cols is None else n_cols
    row = meta.expand_dims(meta.arange(0, n_rows, 1, "int64", _placed(device)), 1) + k
    column = meta.expand_dims(meta.arange(0, columns, 1, "int64", _placed(device)), 0)
    return meta.cast(meta.equal(row, column), "float32" if dtype is None else dtype)


def full(shape: int | Sequence[int], fill_value: dtypes.Number, *, dtype: object = None, device: object = None) -> Any:
    """`fill_value` everywhere; the dtype is bool, int64, float32 or complex64 by the kind of the value."""
    if dtype is None:
        dtype = dtypes.scalar_dtype(fill_value)
    return meta.full(shape, fill_value, dtype, _placed(device))


def ones(shape: int | Sequence[int], *, dtype: object = None, device: object = None) -> Any:
    """Ones."""
    return meta.ones(shape, "float32" if dtype is None else dtype, _placed(device))


def zeros(shape: int | Sequence[int], *, dtype: object = None, device: object = None) -> Any:
    """Zeros."""
    return meta.zeros(shape, "float32" if dtype is None else dtype, _placed(device))


empty = zeros


def full_like(x: Any, /, fill_value: float, *, dtype: Any = None, device: Any = None) -> Any:
    """`fill_value` in the shape of x."""
    return meta.full_like(x, fill_value, dtype).to(device=device)


def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Ones in the shape of x."""
    return meta.ones_like(x, dtype).to(device=device)


def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Zeros in the shape of x."""
    return meta.zeros_like(x, dtype).to(device=device)


empty_like = zeros_like


def meshgrid(*arrays: Tensor, indexing: Literal["xy", "ij"] = "xy") -> tuple[Any, ...]:
    """The coordinates of a grid, one tensor for each 1-D tensor; with "xy" the first two axes are swapped."""
    return meta.meshgrid(*arrays, indexing=indexing)


def _placed(device: object) -> Any:
    return CPU if device is None else device
