"""Operators that torch composes of others: files have them whole, and meta composes them, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import default_decompositions
from torch.nn.utils.rnn import pad_sequence

import meta
from meta.frontend.torch import examine, from_exported
from meta.tree import leaves_of

X = torch.linspace(-1, 1, 24).sin().reshape(4, 6)
SOUND = torch.linspace(0, 40, 128).sin().reshape(2, 64)
HANN, HANN_10 = torch.hann_window(16).clone(), torch.hann_window(10).clone()  # whole: windows are parts of longer ones


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def windows(x: torch.Tensor) -> Any:
    return (
        x * torch.hann_window(6), torch.hann_window(5, periodic=False), torch.hamming_window(6) + x,
        torch.hamming_window(5, False, 0.6, 0.3), torch.blackman_window(6), torch.bartlett_window(7, periodic=False),
        torch.kaiser_window(6), torch.kaiser_window(6, False, 4.0), torch.hann_window(1), torch.hamming_window(1),
        torch.hann_window(4, dtype=torch.float64),
    )  # fmt: skip


def spectra(x: torch.Tensor) -> Any:
    return (
        torch.stft(x, 16, 4, window=HANN, return_complex=True).abs(),
        torch.view_as_real(torch.stft(x, 16, 5, 10, HANN_10, return_complex=True, normalized=True)),
        torch.stft(x[0], 16, 4, 8, HANN[:8], center=False, onesided=False, return_complex=True).real,
    )


def transposes(x: torch.Tensor) -> Any:
    z = torch.complex(x, x.flip(0))
    return (z.mH @ z).real, z.H.imag, z.adjoint().imag, x.mH @ x


CASES: dict[str, tuple[nn.Module, torch.Tensor]] = {
    "lstm cell": (nn.LSTMCell(6, 5), X), "gru cell": (nn.GRUCell(6, 5), X), "cell": (nn.RNNCell(6, 5, bias=False), X),
    "relu cell": (nn.RNNCell(6, 5, nonlinearity="relu"), X), "windows": (Function(windows), X),
    "spectra": (Function(spectra), SOUND), "conjugate transposes": (Function(transposes), X),
    "powers": (Function(lambda x: (torch.vander(x[0]), torch.vander(x[1], 3, increasing=True))), X),
    "sequences": (Function(lambda x: (
        pad_sequence([x[:2], x, x[:1]], batch_first=True), pad_sequence([x[:2], x], padding_value=2.0),
        pad_sequence([x[:3], x], padding_side="left"))), X),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_files_have_them_whole(name: str, tmp_path: Path) -> None:
    module, x = CASES[name]
    program = torch.export.export(module.eval(), (x,))
    torch.export.save(program, tmp_path / "program.pt2")
    expected = torch.utils._pytree.tree_leaves(module(x))
    for source in (program, tmp_path / "program.pt2"):
        results = list(leaves_of(from_exported(source)(meta.from_dlpack(x))))
        assert len(results) == len(expected)
        for ours, theirs in zip(results, expected, strict=True):
            assert isinstance(ours, meta.NDArray)
            assert ours.dtype == str(theirs.dtype).removeprefix("torch.")
            np.testing.assert_allclose(ours.numpy(), theirs.detach().resolve_neg().numpy(), rtol=1e-4, atol=1e-5)


DECOMPOSED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "diff": torch.diff, "glu": nn.functional.glu, "hardswish": nn.functional.hardswish,
    "huber_loss": lambda x: nn.functional.huber_loss(x, x.flip(0), delta=0.3),
    "linalg_cross": lambda x: torch.linalg.cross(x[:, :3], x[:, 3:]), "logit": lambda x: torch.logit(x, 0.1),
    "mish": nn.functional.mish, "pixel_shuffle": lambda x: nn.functional.pixel_shuffle(x.reshape(1, 4, 2, 3), 2),
    "renorm": lambda x: torch.renorm(x, 2, 0, 0.5), "rot90": torch.rot90, "special_entr": torch.special.entr,
}  # fmt: skip


def test_files_have_operators_whole_that_torch_decomposes(tmp_path: Path) -> None:
    """So the table has rows for them: a file is read without torch."""
    decomposed = {operator.name().removeprefix("aten::").partition(".")[0] for operator in default_decompositions()}
    program = torch.export.export(Function(lambda x: [function(x) for function in DECOMPOSED.values()]), (X,))
    torch.export.save(program, tmp_path / "program.pt2")
    whole = {use.name.split(".")[1] for use in examine(tmp_path / "program.pt2").operators}
    assert whole & decomposed >= DECOMPOSED.keys()
    with meta.with_dialect(["reference", "tvm"]):  # compiles nothing
        results = from_exported(tmp_path / "program.pt2")(meta.from_dlpack(X))
    for result, function in zip(results, DECOMPOSED.values(), strict=True):
        np.testing.assert_allclose(result.numpy(), function(X).numpy(), rtol=1e-5, atol=1e-6)


def signals(x: torch.Tensor) -> Any:
    """Of spectra that are no transform of a signal, of one signal and of two, also complex and of given lengths."""
    z = torch.complex(x[:, :36], x[:, 28:]).reshape(2, 9, 4)
    both = torch.cat([z, z.flip(1)[:, 1:8]], 1)
    ones = torch.ones(16)
    return (
        torch.istft(z, 16, 4, window=HANN), torch.istft(z[0], 16, 5, 10, HANN_10, normalized=True),
        torch.istft(z, 16, 4, window=ones, center=False), torch.istft(z, 16, window=ones),
        torch.istft(both, 16, 4, window=HANN),
        torch.istft(z, 16, 4, window=HANN, length=17), torch.istft(z, 16, 3, window=ones, center=False, length=20),
        torch.view_as_real(torch.istft(both, 16, 4, window=HANN, onesided=False, return_complex=True)),
        torch.istft(torch.stft(x, 16, 4, window=HANN, return_complex=True), 16, 4, window=HANN),
    )  # fmt: skip


def diagonals(x: torch.Tensor) -> Any:
    x = x * 2
    tall, cube = x.reshape(12, 2).clone(), x[:2, :4].reshape(2, 2, 2).clone()
    flat = x.clone()
    tall.fill_diagonal_(3.0, wrap=True)
    flat.fill_diagonal_(1.5)
    cube.fill_diagonal_(-1)
    row = x[0].view(3, 2)
    row.fill_diagonal_(7.0)
    return tall, flat, cube, x, (x > 0).int().fill_diagonal_(5), x.reshape(8, 3).clone().fill_diagonal_(2.0, wrap=True)


IN_FILES: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "signals": (signals, SOUND), "diagonals": (diagonals, X),
}  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", IN_FILES)
def test_gradients_of_what_files_have_whole(name: str, compiled: bool, tmp_path: Path) -> None:
    function, x = IN_FILES[name][0], IN_FILES[name][1].double().requires_grad_()
    module = (
        Function(lambda x: [y.to(x.dtype) for y in function(x.float())]) if name == "signals" else Function(function)
    )
    program = torch.export.export(module, (x,))
    torch.export.save(program, tmp_path / "program.pt2")
    results = []
    for source in (program, tmp_path / "program.pt2"):
        model: Any = from_exported(source)
        run = meta.vm.compile(model) if compiled else model
        ours = meta.array(x.detach().numpy(), requires_grad=True)
        results = list(leaves_of(run(ours)))
        expected = module(x)
        for y, each in zip(results, expected, strict=True):
            np.testing.assert_allclose(y.detach().numpy(), each.detach().numpy(), rtol=1e-5, atol=1e-6)
        chosen = [i for i, each in enumerate(expected) if each.is_floating_point()]
        total = sum(expected[i].sin().sum() for i in chosen)
        (gradient,) = torch.autograd.grad(total, [x])
        sum((meta.sum(meta.sin(results[i])) for i in chosen[1:]), meta.sum(meta.sin(results[chosen[0]]))).backward()
        np.testing.assert_allclose(ours.grad.numpy(), gradient.numpy(), rtol=1e-4, atol=1e-5)


def sums(x: torch.Tensor) -> Any:
    """Of dtypes in which meta's own sums of integers are not, and which wrap around."""
    return [
        *(function(x * 9, 0, dtype=dtype) for dtype in (torch.int32, torch.int16, torch.uint8, torch.float64)
          for function in (torch.sum, torch.prod, torch.cumsum, torch.cumprod, torch.nansum)),
        torch.sum(x, dtype=torch.int32), torch.sum(x > 1, 1), torch.cumsum(x > 1, 0), torch.cumsum(x, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32])
def test_sums_have_the_dtype_that_a_program_asks_for(dtype: torch.dtype) -> None:
    x = torch.arange(12).reshape(3, 4).to(dtype)
    module = Function(sums)
    results = from_exported(torch.export.export(module, (x,)))(meta.from_dlpack(x))
    for ours, theirs in zip(results, module(x), strict=True):
        assert ours.dtype == str(theirs.dtype).removeprefix("torch.")
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    report = meta.frontend.torch.explain(module, x)
    assert [fallback for graph in report.graphs for fallback in graph.fallbacks] == []
