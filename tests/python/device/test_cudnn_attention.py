"""Attention by cuDNN, with biases and in programs, against float64 on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.op.dispatch import dialect
from tests.python.device.cudnn_calls import LIMITS, assert_close, reference, run, values

if off := dialect("cudnn").unavailable():
    pytest.skip(f"cuDNN is off: {off}", allow_module_level=True)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("shape", [((2, 4, 128, 64), (2, 4, 128, 64)), ((2, 3, 77, 64), (2, 3, 130, 128))])
def test_attention(shape: Any, dtype: str, causal: bool) -> None:
    q, v = shape
    arrays = [values(*q, dtype=dtype), values(*v[:3], q[3], seed=1, dtype=dtype), values(*v, seed=2, dtype=dtype)]
    name = "attention_with_lse"
    y, lse = reference(name, arrays, causal=causal)
    assert_close(run(name, arrays, causal=causal), [y, lse], LIMITS[dtype], 4)
    dy = values(*y.shape, seed=3, dtype=dtype)
    kind = meta.dtype.to_numpy(dtype)
    saved = [*arrays, y.astype(kind), lse.astype(np.float32), dy]
    assert_close(
        run(f"{name}_dx", saved, causal=causal), reference(f"{name}_dx", saved, causal=causal), LIMITS[dtype], 16
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("lead", [(2, 4), (2, 1), (1, 1), ()])
def test_attention_with_a_bias(lead: tuple[int, ...], dtype: str) -> None:
    """Keys that a bias hides, and rows that attend to nothing: 0, as in every dialect."""
    shape = (2, 4, 77, 64)
    bias = values(*lead, 77, 77, seed=4, dtype=dtype)
    bias[..., 50:] = -np.inf
    bias[..., 3, :] = -np.inf
    arrays = [values(*shape, seed=seed, dtype=dtype) for seed in range(3)]
    name = "attention_with_lse"
    exact, own = meta.array(bias.astype(np.float64)), meta.array(bias, device="cuda")
    y, lse = reference(name, arrays, bias=exact)
    assert_close(run(name, arrays, bias=own), [y, lse], LIMITS[dtype], 4)
    saved = [*arrays, y.astype(meta.dtype.to_numpy(dtype)), lse.astype(np.float32), values(*shape, seed=3, dtype=dtype)]
    expected = reference(f"{name}_dx", saved, bias=exact)
    assert_close(run(f"{name}_dx", saved, bias=own), expected, LIMITS[dtype], 16)


def test_programs_transpose_nothing_around_attention() -> None:
    """Queries, keys and values are parts of one product, and results have heads behind the length."""

    def attended(x: Any) -> Any:
        q, k, v = (meta.transpose(meta.reshape(t, (2, 77, 4, 64)), (0, 2, 1, 3)) for t in meta.split(x, 3, -1))
        return meta.reshape(meta.transpose(meta.attention(q, k, v), (0, 2, 1, 3)), (2, 77, 256)) * 2.0

    x = values(2, 77, 768, dtype="bfloat16")
    compiled = meta.vm.compile(attended, "cuda")
    result = compiled(meta.array(x, device="cuda"))
    with meta.with_dialect("reference"):
        expected = attended(meta.array(x.astype(np.float64)))
    assert_close([result.numpy()], [expected.numpy()], LIMITS["bfloat16"], 8)
    assert "transpose" not in str(compiled.relax(meta.array(x, device="cuda"), stage="planned"))
