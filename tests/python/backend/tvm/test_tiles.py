"""Convolutions in register tiles: sizes that tiles do not divide, strides, padding and dilation, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import meta
from benchmarks.problems import sample
from benchmarks.schedules import scheduled_function
from meta.backend.tvm.te.tiles import cache_block, choose_tile, most_rows, rounded_up
from meta.testing.samples import T
from tests.python.backend.tvm.processors import AVX2, AVX512, schedule_for

# (x, kernel, attributes) with channels last; most have enough channels for the gradients too
CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 9, 7, 8), (11, 3, 3, 8), {"padding": 1}),
    ((1, 13, 17, 9), (40, 3, 2, 9), {"padding": (1, 0, 2, 1), "stride": (2, 3)}),
    ((2, 7, 7, 16), (33, 3, 3, 16), {"padding": 2, "dilation": 2}),
    ((3, 5, 4, 70), (8, 1, 1, 70), {}),
    ((2, 40, 40, 9), (9, 3, 3, 9), {"padding": 1}),
    ((1, 5, 5, 32), (64, 3, 3, 32), {"padding": 1}),
    ((1, 10, 11, 40), (40, 5, 5, 1), {"padding": 2, "groups": 40}),
    ((2, 9, 9, 12), (12, 3, 3, 1), {"padding": (0, 1, 1, 0), "stride": 2, "groups": 12}),
    ((3, 9, 12, 20), (7, 1, 1, 20), {"stride": 2}),
    ((3, 9, 12, 20), (7, 2, 5, 20), {"padding": 3, "stride": (2, 4), "dilation": 2}),
    ((3, 9, 12, 20), (7, 3, 3, 20), {"padding": 1, "stride": (3, 1), "dilation": 2}),
]


def _torch(x: Any, w: Any, padding: Any = 0, **attributes: Any) -> Any:
    pads = (padding,) * 4 if isinstance(padding, int) else padding
    first = torch.nn.functional.pad(x.movedim(-1, 1), (pads[1], pads[3], pads[0], pads[2]))
    return torch.conv2d(first, w.movedim(-1, 1), **attributes).movedim(1, -1)


@pytest.mark.parametrize(("case", "dtype"), [*((case, "float32") for case in CASES), (CASES[1], "float64")], ids=str)
def test_results_and_gradients(case: Any, dtype: str) -> None:
    x_shape, w_shape, attributes = case
    rng = np.random.default_rng(0)
    x, w = (torch.tensor(rng.standard_normal(s), requires_grad=True) for s in (x_shape, w_shape))
    y = _torch(x, w, **attributes)
    dy = torch.tensor(rng.standard_normal(y.shape))
    y.backward(dy)
    x_, w_, dy_ = (meta.array(t.detach().numpy().astype(dtype)) for t in (x, w, dy))
    attributes = {**attributes, "channels_last": True}

    @meta.trace
    def program(x: Any, w: Any, dy: Any) -> Any:
        dx, dw = meta.conv2d_dx(w, dy, x_shape, **attributes), meta.conv2d_dw(x, dy, w_shape, **attributes)
        return meta.conv2d(x, w, **attributes), dx, dw

    with meta.with_dialect("tvm"):
        results = meta.vm.compile(program)(x_, w_, dy_)
    tolerance = 3e-6 if dtype == "float32" else 1e-13
    for result, expected in zip(results, (y, x.grad, w.grad), strict=True):
        assert expected is not None
        expected = expected.detach().numpy()
        np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=tolerance * np.abs(expected).max())


def test_tiles_stay_in_registers() -> None:
    """The rule takes these calls, with strides too, and not channels first."""
    x, w = T(2, 9, 7, 8), T(11, 3, 3, 8)
    dy, strided = T(2, 9, 7, 11), T(2, 5, 4, 11)
    options: dict[str, Any] = {"padding": 1, "channels_last": True}
    in_tiles = {
        sample("conv2d", x, w, **options): True,
        sample("conv2d_dx", w, dy, x.shape, **options): True,
        sample("conv2d_dw", x, strided, w.shape, **options, stride=2): True,
        sample("conv2d", T(2, 9, 7, 12), T(12, 3, 3, 1), **options, groups=12): True,
        sample("conv2d_packed", x, T(1, 3, 3, 8, 16), 11, T(11), dy, True, padding=1): True,
        sample("conv2d_dx", w, strided, x.shape, **options, stride=2): True,
        sample("conv2d", T(2, 8, 9, 7), T(11, 8, 3, 3), padding=1): False,
    }
    for call, expected in in_tiles.items():
        function, _ = scheduled_function(call, "cpu", symbolic=False)
        assert ("tiled_sum_local" in function.script()) == expected, call


@pytest.mark.parametrize(("processor", "panels", "lanes"), [(AVX2, 4, 16), (AVX512, 2, 32)])
def test_copies_read_kernels_in_their_order(
    processor: str, panels: int, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Panels of a kernel turned around are rows of lanes, which the loops read one after the other."""
    schedule_for(processor, monkeypatch)
    call = sample("conv2d_dx", T(64, 3, 3, 64), T(1, 5, 5, 64), (1, 5, 5, 64), padding=1, channels_last=True)
    function, _ = scheduled_function(call, "cpu", symbolic=False)
    loops = function.script().partition('with T.sblock("packed")')[0].splitlines()[-3:-1]
    assert [line.strip() for line in loops] == [
        f"for i2, i0, i1, p in T.grid(64, 3, 3, {panels}):",
        f"for i3 in T.vectorized({lanes}):",
    ]


@pytest.mark.parametrize(
    ("processor", "rows", "expected"), [(AVX512, 64, 8), (AVX2, 64, 4), (AVX2, 18, 6), (AVX2, 49, 7)]
)
def test_accumulators_of_products_stay_in_registers(
    processor: str, rows: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule_for(processor, monkeypatch)
    function, _ = scheduled_function(sample("matmul", T(2, rows, 64), T(2, 64, 64)), "cpu", symbolic=False)
    assert f"in T.unroll({expected}):" in function.script()


def test_parts_of_sums_over_pixels() -> None:
    """The gradient of a kernel sums 65536 pixels in parts, with the rounding errors of one part."""
    x, dy = np.full((16, 64, 64, 8), 1 + 2**-12, "float32"), np.ones((16, 64, 64, 8), "float32")
    with meta.with_dialect("tvm"):
        dw = meta.conv2d_dw(meta.array(x), meta.array(dy), (8, 1, 1, 8), channels_last=True)
    np.testing.assert_allclose(dw.numpy(), 65536 * (1 + 2**-12), rtol=1e-6)


@pytest.mark.parametrize(("processor", "tile"), [(AVX2, (1, 4)), (AVX512, (1, 7))])
def test_tiles_waste_little(processor: str, tile: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    schedule_for(processor, monkeypatch)
    assert choose_tile(7, 7) == tile
    for height, width in [(56, 56), (14, 14), (7, 7), (1, 1), (13, 17), (4, 4)]:
        rows, columns = choose_tile(height, width)
        assert 1 <= rows * columns <= most_rows()
        assert rounded_up(height, rows) * rounded_up(width, columns) <= 1.3 * height * width


def test_cache_blocks_divide_the_tiles() -> None:
    assert cache_block(8, 4, 2, 1 << 14) == (8, 4)
    images, rows = cache_block(8, 55, 2, 1 << 20)
    assert images == 1
    assert rows % 2 == 0
    assert rounded_up(55, 2) % rows == 0


@pytest.mark.parametrize("shape", [(0, 6, 5, 16), (2, 6, 5, 16)], ids=str)
def test_no_image(shape: tuple[int, ...]) -> None:
    """A batch of none has a kernel, too."""
    x, w = meta.zeros(shape), meta.zeros((2, 3, 3, 16, 8))
    y = meta.conv2d_packed(x, w, 16, None, None, False, padding=1)
    assert y.shape[0] == shape[0]
