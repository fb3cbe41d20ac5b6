"""Fourier transforms of torch and NumPy, made of fft_c2c, fft_r2c and fft_c2r.

norm says where sums are divided by the number of points N: "backward" in the transforms that are called inverse (ifft,
irfft, ihfft), "forward" in the others, "ortho" in both, by the square root of N.

Errors are TypeInferenceErrors of the function that was called: a real or complex dtype that it does not take, axes out
of range or named twice, sizes below 1, or not one size for each axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import meta
from meta import dtype as dtypes
from meta._generated.methods import T, Tensor
from meta.device import Device
from meta.dim import Dim
from meta.functional._checks import axis_of, require
from meta.op.rules import show

Norm = Literal["backward", "ortho", "forward"]
Axes = Sequence[int] | int | None
Sizes = Sequence[int] | int | None

_LAST_TWO = (-2, -1)


def fft(x: T, n: int | None = None, axis: int = -1, norm: Norm | None = "backward") -> T:
    """The discrete Fourier transform along an axis, which is cut or padded with zeros to `n` points."""
    return _complex_transform("fft", x, n, axis, norm, forward=True)


def ifft(x: T, n: int | None = None, axis: int = -1, norm: Norm | None = "backward") -> T:
    """The inverse of `fft`."""
    return _complex_transform("ifft", x, n, axis, norm, forward=False)


def rfft(x: T, n: int | None = None, axis: int = -1, norm: Norm | None = "backward") -> T:
    """`fft` of real numbers: the frequencies 0 to n // 2; the others are their conjugates."""
    return _from_real("rfft", x, n, axis, norm)


def irfft(x: T, n: int | None = None, axis: int = -1, norm: Norm | None = "backward") -> T:
    """The inverse of `rfft`: `n` real numbers, by default 2 * (m - 1) for m frequencies."""
    return _to_real("irfft", x, n, axis, norm)


def hfft(x: T, n: int | None = None, axis: int = -1, norm: Norm | None = "backward") -> T:
    """`fft` of a Hermitian signal whose first half is x: `n` real numbers, by default 2 * (m - 1)."""
    return _hermitian_to_real("hfft", x, n, axis, norm)


def ihfft(x: T, n: int | None = None, axis: int = -1, norm: Norm | None = "backward") -> T:
    """The inverse of `hfft`: of real numbers, the first half of a Hermitian signal."""
    return _real_to_hermitian("ihfft", x, n, axis, norm)


def fft2(x: T, s: Sizes = None, axes: Axes = _LAST_TWO, norm: Norm | None = "backward") -> T:
    """`fftn` of the last two axes."""
    return _complex_transform("fft2", x, s, axes, norm, forward=True)


def ifft2(x: T, s: Sizes = None, axes: Axes = _LAST_TWO, norm: Norm | None = "backward") -> T:
    """The inverse of `fft2`."""
    return _complex_transform("ifft2", x, s, axes, norm, forward=False)


def rfft2(x: T, s: Sizes = None, axes: Axes = _LAST_TWO, norm: Norm | None = "backward") -> T:
    """`rfftn` of the last two axes."""
    return _from_real("rfft2", x, s, axes, norm)


def irfft2(x: T, s: Sizes = None, axes: Axes = _LAST_TWO, norm: Norm | None = "backward") -> T:
    """The inverse of `rfft2`."""
    return _to_real("irfft2", x, s, axes, norm)


def hfft2(x: T, s: Sizes = None, axes: Axes = _LAST_TWO, norm: Norm | None = "backward") -> T:
    """`hfftn` of the last two axes."""
    return _hermitian_to_real("hfft2", x, s, axes, norm)


def ihfft2(x: T, s: Sizes = None, axes: Axes = _LAST_TWO, norm: Norm | None = "backward") -> T:
    """The inverse of `hfft2`."""
    return _real_to_hermitian("ihfft2", x, s, axes, norm)


def fftn(x: T, s: Sizes = None, axes: Axes = None, norm: Norm | None = "backward") -> T:
    """The discrete Fourier transform along several axes, each cut or padded with zeros to its size in `s`.

    s: a size for each axis, -1 for the size of x.  axes: None for as many of the last axes as `s` has sizes, or all."""
    return _complex_transform("fftn", x, s, axes, norm, forward=True)


def ifftn(x: T, s: Sizes = None, axes: Axes = None, norm: Norm | None = "backward") -> T:
    """The inverse of `fftn`."""
    return _complex_transform("ifftn", x, s, axes, norm, forward=False)


def rfftn(x: T, s: Sizes = None, axes: Axes = None, norm: Norm | None = "backward") -> T:
    """`fftn` of real numbers, without the negative frequencies of the last of `axes`."""
    return _from_real("rfftn", x, s, axes, norm)


def irfftn(x: T, s: Sizes = None, axes: Axes = None, norm: Norm | None = "backward") -> T:
    """The inverse of `rfftn`. The last size is by default 2 * (m - 1) for m frequencies."""
    return _to_real("irfftn", x, s, axes, norm)


def hfftn(x: T, s: Sizes = None, axes: Axes = None, norm: Norm | None = "backward") -> T:
    """`fftn` of a Hermitian signal whose first half along the last of `axes` is x; real numbers."""
    return _hermitian_to_real("hfftn", x, s, axes, norm)


def ihfftn(x: T, s: Sizes = None, axes: Axes = None, norm: Norm | None = "backward") -> T:
    """The inverse of `hfftn`."""
    return _real_to_hermitian("ihfftn", x, s, axes, norm)


def fftshift(x: T, axes: Axes = None) -> T:
    """The frequencies of a transform in ascending order: 0 moves to the middle of each axis."""
    return _rolled("fftshift", x, axes, 1)


def ifftshift(x: T, axes: Axes = None) -> T:
    """The inverse of `fftshift`."""
    return _rolled("ifftshift", x, axes, -1)


def fftfreq(n: int, d: float = 1.0, *, dtype: str = "float32", device: Device | str = "cpu") -> Any:
    """The frequencies of `fft` of `n` points that are `d` apart, in cycles per unit of d: 0 and up, then the negative
    ones."""
    _require_points("fftfreq", n)
    positions = meta.arange(0, n, 1, "float64", device)
    return meta.cast(meta.where(positions < (n + 1) // 2, positions, positions - n) / (n * d), dtype)


def rfftfreq(n: int, d: float = 1.0, *, dtype: str = "float32", device: Device | str = "cpu") -> Any:
    """The frequencies of `rfft` of `n` points that are `d` apart, in cycles per unit of d."""
    _require_points("rfftfreq", n)
    return meta.cast(meta.arange(0, n // 2 + 1, 1, "float64", device) / (n * d), dtype)


# --- transforms ------------------------------------------------------------------------------------------------------


def _complex_transform(name: str, x: T, s: Sizes, axes: Axes, norm: Norm | None, *, forward: bool) -> T:
    scale = _scale(name, norm, forward=forward)
    x = _inexact(name, x)
    axes, sizes = _resolved(name, x, s, axes)
    x = _resized(x, axes, sizes)
    if not axes:
        return _as_complex(x)
    if not forward or dtypes.is_complex(x.dtype):
        return meta.fft_c2c(_as_complex(x), axes, scale, forward)
    return meta.fft_r2c(x, axes, scale, False)


def _from_real(name: str, x: T, s: Sizes, axes: Axes, norm: Norm | None) -> T:
    scale = _scale(name, norm, forward=True)
    x, axes = _real_signal(name, x, s, axes)
    return meta.fft_r2c(x, axes, scale, True)


def _real_to_hermitian(name: str, x: T, s: Sizes, axes: Axes, norm: Norm | None) -> T:
    scale = _scale(name, norm, forward=False)
    x, axes = _real_signal(name, x, s, axes)
    half = meta.conj(meta.fft_r2c(x, axes[-1:], scale, True))
    return meta.fft_c2c(half, axes[:-1], scale, False) if axes[:-1] else half


def _to_real(name: str, x: T, s: Sizes, axes: Axes, norm: Norm | None) -> T:
    scale = _scale(name, norm, forward=False)
    x, axes, last_size = _half_signal(name, x, s, axes)
    return meta.fft_c2r(x, axes, last_size, scale)


def _hermitian_to_real(name: str, x: T, s: Sizes, axes: Axes, norm: Norm | None) -> T:
    scale = _scale(name, norm, forward=True)
    x, axes, last_size = _half_signal(name, x, s, axes)
    if axes[:-1]:
        x = meta.fft_c2c(x, axes[:-1], scale, True)
    return meta.fft_c2r(meta.conj(x), axes[-1:], last_size, scale)


def _real_signal(name: str, x: Tensor, s: Sizes, axes: Axes) -> tuple[Any, tuple[int, ...]]:
    """Real numbers of the sizes to transform, and the axes."""
    x = _inexact(name, x)
    require(
        name, not dtypes.is_complex(x.dtype), f"'x' has dtype {x.dtype}", "a real dtype", "use fft, or take real(x)"
    )
    resolved, sizes = _resolved(name, x, s, axes)
    _require_axes(name, resolved)
    return _resized(x, resolved, sizes), resolved


def _half_signal(name: str, x: Tensor, s: Sizes, axes: Axes) -> tuple[Any, tuple[int, ...], Any]:
    """Complex numbers of the sizes to transform, the axes, and the size of the last one in the result."""
    x = _as_complex(_inexact(name, x))
    resolved, sizes = _resolved(name, x, s, axes)
    _require_axes(name, resolved)
    last_size: Any = 2 * (x.shape[resolved[-1]] - 1) if sizes[-1] is None else sizes[-1]
    _require_points(name, last_size)
    return _resized(x, resolved, (*sizes[:-1], last_size // 2 + 1)), resolved, last_size


def _rolled(name: str, x: T, axes: Axes, sign: int) -> T:
    listed = tuple(range(x.ndim)) if axes is None else (axes,) if isinstance(axes, int) else axes
    resolved = tuple(axis_of(name, axis, x.ndim) for axis in listed)
    return meta.roll(x, tuple(sign * (x.shape[axis] // 2) for axis in resolved), resolved) if resolved else meta.copy(x)


# --- arguments -------------------------------------------------------------------------------------------------------


def _scale(name: str, norm: Norm | None, *, forward: bool) -> Literal["none", "root", "size"]:
    norm = "backward" if norm is None else norm
    require(name, norm in ("backward", "ortho", "forward"), f"norm is {norm!r}", "'backward', 'ortho' or 'forward'")
    return "root" if norm == "ortho" else "size" if (norm == "forward") == forward else "none"


def _inexact(name: str, x: T) -> T:
    """x in a dtype with a transform: integers and booleans in float32, halves too."""
    has_dtype = hasattr(x, "dtype")
    require(name, has_dtype, f"argument 'x' is {type(x).__name__}", "a tensor", "wrap it: meta.array(...)")
    return x if x.dtype in ("float32", "float64", *dtypes.COMPLEX) else meta.cast(x, "float32")


def _as_complex(x: T) -> T:
    return x if dtypes.is_complex(x.dtype) else meta.cast(x, dtypes.complex_dtype(x.dtype))


def _resolved(name: str, x: Tensor, s: Sizes, axes: Axes) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
    """Axes counted from the front, and the size of each, None for the size of x."""
    sizes = (s,) if isinstance(s, int) else None if s is None else tuple(s)
    if axes is None:
        count = x.ndim if sizes is None else len(sizes)
        require(name, count <= x.ndim, f"{count} sizes for shape {show(x.shape)}", f"at most {x.ndim}")
        axes = tuple(range(x.ndim - count, x.ndim))
    listed = (axes,) if isinstance(axes, int) else tuple(axes)
    require(name, x.ndim > 0 or not listed, "'x' is 0-d", "at least one axis")
    resolved = tuple(axis_of(name, axis, x.ndim) for axis in listed)
    require(name, len(set(resolved)) == len(resolved), f"axes {listed} name an axis twice", "distinct axes")
    if sizes is None:
        sizes = (-1,) * len(resolved)
    fits = len(sizes) == len(resolved)
    require(name, fits, f"{len(sizes)} sizes for {len(resolved)} axes", "one for each")
    for size, axis in zip(sizes, resolved, strict=True):
        if not isinstance(s, int) and size == -1:
            _require_points(name, x.shape[axis])
        else:
            _require_points(name, size)
    return resolved, tuple(None if size == -1 else size for size in sizes)


def _require_points(name: str, count: Dim) -> None:
    enough = not isinstance(count, int) or count >= 1
    require(name, enough, f"{count} points", "at least one point to transform")


def _require_axes(name: str, axes: tuple[int, ...]) -> None:
    require(name, len(axes) > 0, "no axes", "at least one axis to transform")


def _resized(x: T, axes: tuple[int, ...], sizes: Sequence[Any]) -> T:
    """x with the axes cut, or padded with zeros at the end."""
    widths = [0] * (2 * x.ndim)
    ends = list(x.shape)
    for axis, size in zip(axes, sizes, strict=True):
        if size is None:
            continue
        widths[2 * axis + 1] = max(size - x.shape[axis], 0)
        ends[axis] = min(size, x.shape[axis])
    if tuple(ends) != tuple(x.shape):
        x = meta.strided_slice(x, (0,) * x.ndim, tuple(ends))
    return meta.pad(x, tuple(widths)) if any(widths) else x
