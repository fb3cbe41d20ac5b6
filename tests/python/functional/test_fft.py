"""meta.fft against torch.fft: values and gradients to second order, dialects, errors, programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta import dtype as dtypes
from meta.errors import TypeInferenceError

_RNG = np.random.default_rng(0)
REAL = _RNG.standard_normal((2, 3, 4))
COMPLEX = REAL + 1j * _RNG.standard_normal((2, 3, 4))

ONE = ("fft", "hfft", "ifft", "ihfft", "irfft", "rfft")
TWO = ("fft2", "hfft2", "ifft2", "ihfft2", "irfft2", "rfft2")
MANY = ("fftn", "hfftn", "ifftn", "ihfftn", "irfftn", "rfftn")
OF_REAL = ("ihfft", "ihfft2", "ihfftn", "rfft", "rfft2", "rfftn")
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(ONE, ((), (3, -1, "ortho"), (6, 1, "forward"), (1, 0, "backward"))),
    **dict.fromkeys(TWO, ((), ((4, 5), (0, -1), "ortho"), ((2, -1), (-1, 0), "forward"))),
    **dict.fromkeys(MANY, ((), ((5,),), (None, (0, 2), "ortho"), ((2, 2), (2, 0), "forward"))),
    **dict.fromkeys(("fftshift", "ifftshift"), ((), (1,), ((0, 2),))),
}


def _loss(m: Any, y: Any) -> Any:
    is_complex = y.is_complex() if m is torch else dtypes.is_complex(y.dtype)
    part = m.real(y * (0.3 - 0.7j)) if is_complex else y
    return (part**3).sum()


def _results(m: Any, name: str, arguments: Any, x: Any) -> list[Any]:
    """The value, the gradient of a loss, and that of a sum over the gradient."""
    grad = torch.autograd.grad if m is torch else meta.autograd.grad
    y = getattr(m.fft, name)(x, *arguments)
    (first,) = grad(_loss(m, y), x, create_graph=True)
    (second,) = grad(m.abs(first).sum(), x)
    return [y, first, second]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_values_and_gradients_as_in_torch(name: str) -> None:
    for host in (REAL,) if name in OF_REAL else (REAL, COMPLEX):
        for arguments in ARGUMENTS[name]:
            ours = _results(meta, name, arguments, meta.array(host, requires_grad=True))
            theirs = _results(torch, name, arguments, torch.tensor(host, requires_grad=True))
            for a, b in zip(ours, theirs, strict=True):
                assert a.dtype == str(b.dtype).removeprefix("torch.")
                np.testing.assert_allclose(a.detach().numpy(), b.detach().resolve_conj().numpy(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ONE)
def test_dialects_agree(name: str) -> None:
    for host in (REAL,) if name in OF_REAL else (REAL, COMPLEX):
        x = meta.array(host.astype("complex64" if host is COMPLEX else "float32"))
        results = []
        for dialect in ("torch", "reference"):
            with meta.with_dialect([dialect, "tvm", "reference"]):
                results.append(getattr(meta.fft, name)(x, 5, 1, "ortho"))
        assert results[0].type is results[1].type
        np.testing.assert_allclose(results[0].numpy(), results[1].numpy(), rtol=1e-5, atol=1e-6)


def test_dtypes() -> None:
    for dtype, expected in {
        "int32": "complex64",
        "bool": "complex64",
        "float16": "complex64",
        "float64": "complex128",
    }.items():
        x = meta.array([1.0, 0.0, 1.0], dtype=dtype)
        assert meta.fft.fft(x).dtype == meta.fft.rfft(x).dtype == expected
        assert meta.fft.irfft(x).dtype == dtypes.real_dtype(expected)
    assert meta.fft.fftn(meta.array(2.0)).tolist() == 2 + 0j


@pytest.mark.parametrize("n", [1, 4, 5])
def test_frequencies(n: int) -> None:
    for name in ("fftfreq", "rfftfreq"):
        expected = getattr(torch.fft, name)(n, 0.25, dtype=torch.float64)
        np.testing.assert_allclose(getattr(meta.fft, name)(n, 0.25, dtype="float64").numpy(), expected.numpy())


ERRORS: list[tuple[str, tuple[Any, ...], str]] = [
    ("fft", (REAL, 0), r"\[fft\] 0 points; expected at least one point to transform"),
    ("fft", (REAL, -1), r"\[fft\] -1 points"),
    ("fft", (REAL, None, 3), r"\[fft\] axis 3 is out of range for rank 3; expected -3 to 2"),
    ("fft", (REAL, None, -1, "other"), r"\[fft\] norm is 'other'; expected 'backward', 'ortho' or 'forward'"),
    ("fft", (REAL[0, 0, 0],), r"\[fft\] 'x' is 0-d; expected at least one axis"),
    ("ifft", (REAL[:, :0], None, 1), r"\[ifft\] 0 points"),
    ("irfft", (COMPLEX[..., :1],), r"\[irfft\] 0 points"),
    ("hfft", (COMPLEX, 0), r"\[hfft\] 0 points"),
    ("rfft", (COMPLEX,), r"\[rfft\] 'x' has dtype complex128; expected a real dtype; use fft, or take real\(x\)"),
    ("ihfft", (COMPLEX,), r"\[ihfft\] 'x' has dtype complex128; expected a real dtype"),
    ("fft2", (REAL[0, 0],), r"\[fft2\] axis -2 is out of range for rank 1"),
    ("fft2", (REAL, (2, 2, 2)), r"\[fft2\] 3 sizes for 2 axes; expected one for each"),
    ("fftn", (REAL, (1, 2, 3, 4)), r"\[fftn\] 4 sizes for shape \(2, 3, 4\); expected at most 3"),
    ("fftn", (REAL, None, (0, -3)), r"\[fftn\] axes \(0, -3\) name an axis twice; expected distinct axes"),
    ("rfftn", (REAL, None, ()), r"\[rfftn\] no axes; expected at least one axis to transform"),
    ("irfftn", (COMPLEX, None, ()), r"\[irfftn\] no axes"),
    ("hfftn", (COMPLEX, (-2, 3), (0, 1)), r"\[hfftn\] -2 points"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "message"), ERRORS)
def test_errors(name: str, arguments: tuple[Any, ...], message: str) -> None:
    x, *rest = arguments
    with pytest.raises(TypeInferenceError, match=message):
        getattr(meta.fft, name)(meta.array(x), *rest)


def test_errors_without_a_tensor() -> None:
    with pytest.raises(
        TypeInferenceError, match=r"\[fft\] argument 'x' is list; expected a tensor; wrap it: meta.array"
    ):
        meta.fft.fft([1.0, 2.0])
    with pytest.raises(TypeInferenceError, match=r"\[fftfreq\] 0 points"):
        meta.fft.fftfreq(0)


def test_programs() -> None:
    @meta.trace
    def step(x: Any) -> Any:
        y = meta.fft.irfft(meta.fft.rfft(x) * (1 - 2j), 5)
        loss = (y * y).sum() + meta.abs(meta.fft.fft2(x)).sum()
        loss.backward()
        return loss, x.grad, meta.fft.fftshift(y)

    expected = step(meta.array(REAL, requires_grad=True))
    results = meta.vm.compile(step)(meta.array(REAL, requires_grad=True))
    for a, b in zip(results, expected, strict=True):
        assert a.type is b.type
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-10)
