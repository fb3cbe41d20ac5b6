"""Plans that cuDNN compiles in one process, on a GPU, and later processes load."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from meta.op.dispatch import dialect

OFF = dialect("cudnn").unavailable()
if OFF:
    pytest.skip(f"cuDNN is off: {OFF}", allow_module_level=True)

LAYER_NORM = """
import sys, numpy, meta
from meta.backend.cudnn import frontend
if sys.argv[1] == "second":
    frontend.OperationGraph.build_plans = None
x, scale, bias = (meta.array(x, device="cuda") for x in numpy.load(sys.argv[2]).values())
with meta.with_dialect(["cudnn", "tvm"]):
    results = [meta.layer_norm(x, scale, bias) for _ in range(3)]
    results += [g for _ in range(2) for g in meta.layer_norm_dxwb(x, scale, x)]
numpy.savez(sys.argv[3], *(y.numpy() for y in results))
"""


def test_later_processes_load_compiled_plans(tmp_path: Any) -> None:
    """Layer norm has the same results bit by bit where its plans are compiled and where they are loaded."""
    tmp_path.chmod(0o700)
    generator = np.random.default_rng(0)
    inputs = str(tmp_path / "inputs.npz")
    np.savez(inputs, *(generator.standard_normal(s).astype("float32") for s in ((64, 768), (768,), (768,))))
    environment = {**os.environ, "META_CACHE": "1", "META_CACHE_DIR": str(tmp_path)}
    results: list[list[Any]] = []
    for which in ("first", "second"):
        out = str(tmp_path / f"{which}.npz")
        subprocess.run([sys.executable, "-c", LAYER_NORM, which, inputs, out], env=environment, check=True, timeout=120)
        results.append(list(np.load(out).values()))
        if not list(tmp_path.rglob("*.compiled_plan")):
            pytest.skip("this cuDNN compiles no kernels for layer norm")
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)
