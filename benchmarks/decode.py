"""Tokens per second of a Qwen2 with random weights, in float32, 8 and 4 bits, against reading the weights once.

python -m benchmarks.decode [--layers 24] [--tokens 16] [--rounds 5]

Qwen2-0.5B has the shapes: 494 million weights, head and table of tokens tied. A folder is written, loaded in
each format, and decoded in turn on one thread; the least time of a token in all rounds counts. Beside it are the
least times to read as many bytes as the float32 model has: a NumPy sum, and a product of a matrix with a vector.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402

import meta  # noqa: E402
from meta.frontend import huggingface  # noqa: E402
from meta.models import Llama  # noqa: E402

FORMATS = (None, "int8", "int4:64")


def entries(layers: int) -> dict[str, Any]:
    """The configuration of Qwen2-0.5B, with fewer positions."""
    return {
        "model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864,
        "num_hidden_layers": layers, "num_attention_heads": 14, "num_key_value_heads": 2, "rope_theta": 1e6,
        "max_position_embeddings": 1024, "tie_word_embeddings": True, "rms_norm_eps": 1e-6,
    }  # fmt: skip


def write(folder: Path, layers: int) -> int:
    """Write a folder in bfloat16; returns the bytes that its weights take in float32."""
    lm = Llama(entries(layers))
    rng = np.random.default_rng(0)
    with meta.no_grad():
        for x in lm.parameters():
            values = rng.standard_normal(x.shape, np.float32) * 0.02 + (x.ndim == 1)
            x.update(meta.array(values))
    count = 4 * sum(x.size for x in lm.parameters())
    huggingface.save(folder, lm.to(dtype="bfloat16"))
    return count


def token_times(lm: Any, count: int) -> list[float]:
    """Seconds of each token but the first two, which also read the prompt and load programs."""
    ends = [time.perf_counter() for _ in lm.generate([1, 2, 3, 4], count + 2, stream=True)]
    return np.diff(ends)[1:].tolist()


def read_times(size: int) -> tuple[float, float]:
    """Seconds of a sum over `size` bytes, and of a product of a matrix of `size` bytes with a vector."""
    matrix = np.ones((size // (4 * 4096), 4096), np.float32)
    vector = np.ones(4096, np.float32)
    return min(_seconds(matrix.sum) for _ in range(3)), min(_seconds(lambda: matrix @ vector) for _ in range(3))


def _seconds(function: Any) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        size = write(Path(path), options.layers)
        models = {}
        for weights in reversed(FORMATS):
            models[weights] = huggingface.load(path, "float32", weights=weights)
            kept = sum(x.size * np.dtype(x.numpy().dtype).itemsize for _, x in models[weights].named_state())
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(f"{weights or 'float32'}: {kept / 1e9:.3f} GB of weights; the process had at most {peak:.2f} GiB")
    times: dict[str | None, list[float]] = {weights: [] for weights in FORMATS}
    reads = []
    for _ in range(options.rounds):
        for weights in FORMATS:
            times[weights] += token_times(models[weights], options.tokens)
        reads.append(read_times(size))
    read = min(min(pair) for pair in reads)
    print(
        f"reading {size / 1e9:.2f} GB: sum {min(r[0] for r in reads):.4f} s, product {min(r[1] for r in reads):.4f} s"
    )
    print("| weights | tokens/s | against float32 | reading float32 / token |\n| --- | --- | --- | --- |")
    for weights in FORMATS:
        best = min(times[weights])
        print(f"| {weights or 'float32'} | {1 / best:.1f} | {min(times[None]) / best:.2f} | {read / best:.2f} |")


if __name__ == "__main__":
    main()
