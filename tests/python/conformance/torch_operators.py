"""Check the operators of `meta.torch` on their samples: `python -m tests.python.conformance.torch_operators [names]`.

Each row runs in torch's own `opcheck`, and through `torch.ops` against meta's own call: results and gradients have to
be equal, and vmap over two rows has to give what two calls give."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import meta
from meta import dtype as dtypes
from meta.autograd.batch import is_random
from meta.frontend.torch.operators.kernels import function_of
from meta.frontend.torch.operators.registration import ensure
from meta.testing.samples import Sample, T
from meta.testing.torch_operators import TorchCall
from meta.tree import leaves_of, with_leaves
from tests.python.op.samples import samples


def call_of(sample: Sample) -> TorchCall:
    """A row as a call of torch."""
    accepted = sample.run_dtypes()
    dtype = "float32" if "float32" in accepted else accepted[0]
    args, kwargs = sample.map(lambda t, path: _tensor(t, dtype, f"{sample.op}/{sample.id}/{path}"))
    return TorchCall(sample.operator, args, kwargs)


def _tensor(t: T, dtype: str, seed: str) -> torch.Tensor:
    values = t.values(dtype, seed)
    name = dtypes.canonical(values.dtype)
    return torch.tensor(np.asarray(values, "float32") if name == "bfloat16" else values, dtype=getattr(torch, name))


def opcheck(sample: Sample) -> dict[str, str]:
    """What torch's opcheck finds wrong with a row, by its tests."""
    return call_of(sample).problems()


def differences(sample: Sample) -> list[str]:
    """Where a row through torch differs from meta's own call: results, gradients, calls under vmap."""
    call = call_of(sample)
    ours = call.tracked()
    theirs = tuple(
        with_leaves(v, [_array(x) for x in leaves_of(v)]) if p.is_tensor else p.from_torch(v, int)
        for p, v in zip(call.parameters, ours, strict=False)
    )
    results, expected = _as_list(call.overload(*ours)), _as_list(function_of(call.op)(*theirs))
    out = [f"result {i}" for i, (y, z) in enumerate(zip(results, expected, strict=True)) if not _equal(y, z)]
    xs, arrays = _trackable(ours), [x for x in leaves_of(theirs) if getattr(x, "requires_grad", False)]
    pairs = [(y, z) for y, z in zip(results, expected, strict=True) if y.requires_grad]
    if pairs and xs:
        seeds = [torch.ones_like(y) for y, _ in pairs]
        gradients = torch.autograd.grad([y for y, _ in pairs], xs, seeds, allow_unused=True)
        outputs = [z for _, z in pairs]
        known = meta.autograd.grad(outputs, arrays, [meta.ones_like(z) for z in outputs], allow_unused=True)
        out += [f"gradient {i}" for i, (g, k) in enumerate(zip(gradients, known, strict=True)) if not _equal(g, k)]
    return out + _batched_differences(call)


def _batched_differences(call: TorchCall) -> list[str]:
    floating = [x for x in leaves_of(call.values) if isinstance(x, torch.Tensor)]
    if not floating or is_random(call.op) or call.op.resolve is not None:
        return []

    def run(*xs: torch.Tensor) -> Any:
        rest = iter(xs)
        return call.overload(
            *with_leaves(
                call.values, [next(rest) if isinstance(x, torch.Tensor) else x for x in leaves_of(call.values)]
            )
        )

    twice = torch.vmap(run)(*[torch.stack([x, x]) for x in floating])
    once = _as_list(run(*floating))
    pairs = zip(_as_list(twice), once, strict=True)
    close = [torch.allclose(y[1], z, rtol=1e-4, atol=1e-5, equal_nan=True) for y, z in pairs]
    return [f"vmap {i}" for i, is_close in enumerate(close) if not is_close]


def _array(x: Any) -> Any:
    if not isinstance(x, torch.Tensor):
        return x
    out = meta.from_dlpack(x.detach(), copy=True)
    if x.requires_grad:
        out.requires_grad = True
    return out


def _trackable(values: Any) -> list[torch.Tensor]:
    return [x for x in leaves_of(values) if isinstance(x, torch.Tensor) and x.requires_grad]


def _as_list(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _equal(y: torch.Tensor | None, z: Any) -> bool:
    if y is None or z is None:
        return y is None and z is None
    other = torch.from_dlpack(z.detach())
    return y.dtype == other.dtype and torch.allclose(y.detach(), other, rtol=0, atol=0, equal_nan=True)


def main(names: Sequence[str]) -> int:
    """Check the rows of all operators, or of those named, and print what fails. Returns 1 if any row does."""
    warnings.simplefilter("ignore")
    meta.torch.register()
    failed: dict[str, list[str]] = {}
    checked: set[str] = set()
    for sample in samples():
        try:
            ensure(sample.operator)
        except meta.errors.NotSupportedError:
            continue
        if names and sample.op not in names:
            continue
        checked.add(sample.op)
        try:
            problems = [*opcheck(sample).items(), *differences(sample)]
        except Exception as error:  # noqa: BLE001  # whatever a row raises is its result
            problems = [f"{type(error).__name__}: {error}"]
        if problems:
            failed.setdefault(sample.op, []).append(f"{sample!r}: {problems}"[:600])
            print(failed[sample.op][-1], flush=True)  # noqa: T201  # a command
    print(f"{len(checked) - len(failed)} of {len(checked)} operators pass")  # noqa: T201  # a command
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
