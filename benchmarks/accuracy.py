"""`python -m benchmarks.accuracy [--device cuda] [--largest 1e8] [--only TEXT]`: errors of sums as sizes grow.

A line gives the largest error of an operator, run eagerly and in a compiled program, and that of torch, against
float64, relative to the largest result. It passes if the error is at most twice torch's, or two units of the last place
where torch's is smaller than one. Sizes count the elements of an operand; 1e8 of them take 2.5 GB of memory.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import meta

Array = Any
F = torch.nn.functional


@dataclass(frozen=True, slots=True)
class Case:
    """An operator and its data.

    Attributes:
        name: operator, and kind of its shape.
        data: the operands, for a number of elements and a random generator.
        ours, theirs: the operator in meta and in torch.
        exact: the result in float64, from operands in float64.
        unit: the distance of 1 to the next number of the dtype.
    """

    name: str
    data: Callable[[int, np.random.Generator], Sequence[Array]]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    exact: Callable[..., Any]
    unit: float = 2.0**-23


def _constant(*shape: int) -> Any:
    """Tenths: every addition of two of them rounds, always in the same direction."""

    def data(n: int, rng: np.random.Generator) -> list[Array]:
        return [np.full(_sizes(shape, n), rng.integers(1, 10) / 10, np.float32)]

    return data


def _uniform(*shape: int, operands: int = 1, dtype: str = "float32") -> Any:
    def data(n: int, rng: np.random.Generator) -> list[Array]:
        return [rng.random(_sizes(shape, n), np.float32).astype(dtype) for _ in range(operands)]

    return data


def _normal(*shape: int, mean: float = 0.0, operands: int = 1) -> Any:
    def data(n: int, rng: np.random.Generator) -> list[Array]:
        return [rng.standard_normal(_sizes(shape, n), np.float32) + np.float32(mean) for _ in range(operands)]

    return data


def _factors(*shape: int) -> Any:
    """Numbers whose products stay near 1."""

    def data(n: int, rng: np.random.Generator) -> list[Array]:
        return [(1 + rng.standard_normal(_sizes(shape, n), np.float32) / np.float32(np.sqrt(n))).astype(np.float32)]

    return data


def _sizes(shape: tuple[int, ...], n: int) -> tuple[int, ...]:
    """The shape with n elements, in which -1 marks the axis that grows."""
    fixed = int(np.prod([d for d in shape if d != -1]))
    return tuple(max(n // fixed, 1) if d == -1 else d for d in shape)


SHAPES: dict[str, tuple[tuple[int, ...], Any]] = {
    "full": ((-1,), None),
    "full 2d": ((-1, 4), None),
    "last axis": ((8, -1), 1),
    "outer axis": ((-1, 4), 0),
    "outer axis, wide": ((-1, 96), 0),
    "middle axis": ((2, -1, 4), 1),
    "two axes": ((-1, 3, 16), (0, 2)),
}


def _reductions() -> Iterator[Case]:
    for kind, (shape, axis) in SHAPES.items():
        torch_axis = axis if axis is not None else tuple(range(len(shape)))
        for name, make in (("tenths", _constant), ("uniform", _uniform)):
            yield Case(f"sum, {kind}, {name}", make(*shape), lambda x, a=axis: meta.sum(x, a),
                       lambda x, a=torch_axis: x.sum(a), lambda x, a=axis: x.sum(a))  # fmt: skip
        yield Case(f"mean, {kind}", _uniform(*shape), lambda x, a=axis: meta.mean(x, a),
                   lambda x, a=torch_axis: x.mean(a), lambda x, a=axis: x.mean(a))  # fmt: skip
        for name in ("var", "std"):
            yield Case(f"{name}, {kind}, N(1e4, 1)", _normal(*shape, mean=1e4),
                       lambda x, a=axis, n=name: getattr(meta, n)(x, a),
                       lambda x, a=torch_axis, n=name: getattr(torch, n)(x, a),
                       lambda x, a=axis, n=name: getattr(np, n)(x, axis=a, ddof=1))  # fmt: skip
        yield Case(f"logsumexp, {kind}", _uniform(*shape), lambda x, a=axis: meta.logsumexp(x, a),
                   lambda x, a=torch_axis: x.logsumexp(a), lambda x, a=axis: np.log(np.exp(x).sum(a)))  # fmt: skip
        yield Case(f"norm, {kind}", _normal(*shape), lambda x, a=axis: meta.sqrt(meta.sum(meta.square(x), a)),
                   lambda x, a=torch_axis: torch.linalg.vector_norm(x, dim=a),
                   lambda x, a=axis: np.sqrt((x * x).sum(a)))  # fmt: skip
    yield Case("sum, full, float64", _uniform(-1, dtype="float64"), meta.sum, torch.sum, _exact_sum, 2.0**-52)
    yield Case("sum, outer axis, float64", _uniform(-1, 4, dtype="float64"), lambda x: meta.sum(x, 0),
               lambda x: x.sum(0), lambda x: np.array([_exact_sum(x[:, i]) for i in range(4)]), 2.0**-52)  # fmt: skip
    yield Case("sum, full, float16 to float32", _uniform(-1, dtype="float16"),
               lambda x: meta.sum(meta.cast(x, "float32")), lambda x: x.sum(dtype=torch.float32), np.sum)  # fmt: skip
    yield Case("var, full, N(0, 1)", _normal(-1), meta.var, torch.var, lambda x: x.var(ddof=1))
    yield Case("var, full, N(1e6, 1)", _normal(-1, mean=1e6), meta.var, torch.var, lambda x: x.var(ddof=1))


def _exact_sum(x: Array) -> Any:
    return x.astype(np.longdouble).sum()


def _scans() -> Iterator[Case]:
    for kind, shape, axis in (("one axis", (-1,), 0), ("last axis", (8, -1), 1), ("outer axis", (-1, 4), 0)):
        yield Case(f"cumsum, {kind}", _uniform(*shape), lambda x, a=axis: meta.cumsum(x, a),
                   lambda x, a=axis: x.cumsum(a), lambda x, a=axis: x.cumsum(a))  # fmt: skip
        yield Case(f"cumprod, {kind}", _factors(*shape), lambda x, a=axis: meta.cumprod(x, a),
                   lambda x, a=axis: x.cumprod(a), lambda x, a=axis: x.cumprod(a))  # fmt: skip


def _moments(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    mean = x.mean(axes, keepdims=True)
    return mean, 1 / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + 1e-5)


def _normalised(x: Array, axes: tuple[int, ...]) -> Array:
    mean, invstd = _moments(x, axes)
    return (x - mean) * invstd


def _normalisations() -> Iterator[Case]:
    for mean in (0.0, 1e4):
        rows, columns = _normal(8, -1, mean=mean), _normal(-1, 4, mean=mean)
        yield Case(f"layer_norm, mean {mean:g}", rows, meta.layer_norm, lambda x: F.layer_norm(x, x.shape[1:]),
                   lambda x: _normalised(x, (1,)))  # fmt: skip
        for i, name in enumerate(("result", "mean", "invstd")):
            yield Case(f"batch_norm_train, {name}, mean {mean:g}", columns,
                       lambda x, i=(0, 3, 4)[i]: _batch_norm(x)[i], lambda x, i=i: _torch_batch_norm(x)[i],
                       lambda x, i=i: (_normalised(x, (0,)), *(m[0] for m in _moments(x, (0,))))[i])  # fmt: skip
    yield Case("rms_norm", _normal(8, -1), meta.rms_norm, lambda x: F.rms_norm(x, x.shape[1:], eps=1e-5),
               lambda x: x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5))  # fmt: skip
    yield Case("group_norm", _normal(2, 6, -1), lambda x: meta.group_norm(x, 3), lambda x: F.group_norm(x, 3),
               lambda x: _normalised(x.reshape(2, 3, -1), (2,)).reshape(x.shape))  # fmt: skip
    for i, name in enumerate(("dscale", "dbias")):
        yield Case(f"layer_norm_dwb, {name}", _uniform(-1, 8, operands=2),
                   lambda x, dy, i=i: meta.layer_norm_dwb(x, dy)[i],
                   lambda x, dy, i=i: _torch_layer_norm_dwb(x, dy)[i],
                   lambda x, dy, i=i: ((_normalised(x, (1,)) * dy).sum(0), dy.sum(0))[i])  # fmt: skip
    yield Case("softmax, last axis", _normal(8, -1), meta.softmax, lambda x: x.softmax(-1),
               lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True))  # fmt: skip
    yield Case("log_softmax, outer axis", _normal(-1, 4), lambda x: meta.log_softmax(x, 0),
               lambda x: x.log_softmax(0), lambda x: x - np.log(np.exp(x).sum(0)))  # fmt: skip


def _batch_norm(x: Any) -> Any:
    zero, one = meta.zeros((4,), device=x.device), meta.ones((4,), device=x.device)
    return meta.batch_norm_train(x, zero, one, axis=1)


def _torch_batch_norm(x: Any) -> Any:
    zero, one = torch.zeros(4, device=x.device), torch.ones(4, device=x.device)
    return torch.native_batch_norm(x, None, None, zero, one, True, 0.1, 1e-5)


def _torch_layer_norm_dwb(x: Any, dy: Any) -> Any:
    scale, bias = (f(x.shape[1:], device=x.device).requires_grad_() for f in (torch.ones, torch.zeros))
    F.layer_norm(x, x.shape[1:], scale, bias).backward(dy)
    return scale.grad, bias.grad


def _labels(n: int, rng: np.random.Generator) -> list[Array]:
    rows = max(n // 8, 1)
    return [rng.standard_normal((rows, 8), np.float32), rng.integers(0, 8, rows)]


def _exact_cross_entropy(x: Array, target: Array) -> Array:
    logs = x - np.log(np.exp(x).sum(1, keepdims=True))
    return -logs[np.arange(len(x)), target.astype(np.int64)].mean()


def _others() -> Iterator[Case]:
    yield Case("mse_loss", _uniform(-1, 4, operands=2), meta.mse_loss, F.mse_loss, lambda x, y: ((x - y) ** 2).mean())
    yield Case("l1_loss", _uniform(-1, 4, operands=2), meta.l1_loss, F.l1_loss, lambda x, y: abs(x - y).mean())
    yield Case("cross_entropy", _labels, meta.cross_entropy, F.cross_entropy, _exact_cross_entropy)
    yield Case("adaptive_avg_pool2d to 1", _uniform(2, 4, -1, 8), lambda x: meta.adaptive_avg_pool2d(x, 1),
               lambda x: F.adaptive_avg_pool2d(x, 1), lambda x: x.mean((2, 3), keepdims=True))  # fmt: skip
    yield Case("gradient of a bias", _uniform(-1, 4), lambda x: _bias_gradient(meta, x), _torch_bias_gradient,
               lambda x: x.sum(0))  # fmt: skip
    yield Case("gradient of a factor", _uniform(-1, 4), lambda x: _factor_gradient(meta, x), _torch_factor_gradient,
               lambda x: x.sum(0))  # fmt: skip
    yield Case("gradient of a scalar factor", _uniform(-1), lambda x: _factor_gradient(meta, x, ()),
               lambda x: _torch_factor_gradient(x, ()), lambda x: x.sum())  # fmt: skip
    for dialect in ("", "tvm"):
        yield Case(f"matmul{' (tvm)' * bool(dialect)}, 2 rows", lambda n, rng: [
                       rng.random((2, max(n // 2, 1)), np.float32), rng.random((max(n // 2, 1), 2), np.float32)],
                   lambda x, y, d=dialect: _matmul(x, y, d), torch.matmul, np.matmul)  # fmt: skip


def _matmul(x: Any, y: Any, dialect: str) -> Any:
    if not dialect:
        return meta.matmul(x, y)
    with meta.with_dialect(dialect):
        return meta.matmul(x, y)


def _bias_gradient(library: Any, x: Any) -> Any:
    bias = library.zeros(x.shape[1:], device=x.device)
    bias.requires_grad = True
    ((x + bias) * x).sum().backward()
    return bias.grad


def _torch_bias_gradient(x: Any) -> Any:
    return _bias_gradient(torch, x)


def _factor_gradient(library: Any, x: Any, shape: Any = None) -> Any:
    factor = library.ones(x.shape[1:] if shape is None else shape, device=x.device)
    factor.requires_grad = True
    (x * factor).sum().backward()
    return factor.grad


def _torch_factor_gradient(x: Any, shape: Any = None) -> Any:
    return _factor_gradient(torch, x, shape)


def cases() -> Iterator[Case]:
    """All cases."""
    yield from _reductions()
    yield from _scans()
    yield from _normalisations()
    yield from _others()


def errors(case: Case, n: int, device: str, draws: int) -> tuple[float, float, float]:
    """The largest errors of eager calls, of a program and of torch, over some draws of about n elements."""
    program = meta.vm.compile(meta.trace(lambda *args: case.ours(*args)), device=device)
    largest = np.max([_errors_of_draw(case, program, n, seed, device) for seed in range(draws)], axis=0)
    return tuple(map(float, largest))  # pyright: ignore[reportReturnType]


def _errors_of_draw(case: Case, program: Any, n: int, seed: int, device: str) -> list[float]:
    operands = case.data(n, np.random.default_rng(seed))
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in operands]
    exact = np.asarray(case.exact(*wide))
    del wide
    reference = _error(case.theirs(*(torch.from_numpy(a).to(device) for a in operands)).detach().cpu().numpy(), exact)
    arrays = [meta.array(a, device=device) for a in operands]
    return [_error(case.ours(*arrays).numpy(), exact), _error(program(*arrays).numpy(), exact), reference]


def _error(result: Array, exact: Array) -> float:
    result, flat = np.asarray(result).reshape(-1), exact.reshape(-1)
    parts = [slice(i, i + _PART) for i in range(0, flat.size, _PART)]
    differences = [np.abs(result[part].astype(np.longdouble) - flat[part]).max() for part in parts]
    return float(np.max(differences) / np.max([np.abs(flat[part]).max() for part in parts]))


_PART = 1 << 22
"""Elements that are compared at once, since long doubles take 16 bytes each."""


def allowed(case: Case, reference: float) -> float:
    """The largest error that passes: twice torch's, which may be below a unit of the last place by chance."""
    return 2 * max(reference, case.unit)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line per case and size. Returns 1 if an error is above the allowed one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--only", default="", help="only cases whose names contain this text")
    parser.add_argument("--smallest", type=float, default=1e3)
    parser.add_argument("--largest", type=float, default=1e7)
    options = parser.parse_args(argv)
    failures = 0
    print(f"{'case':42} {'elements':>9} {'eager':>9} {'VM':>9} {'torch':>9} {'ratio':>6}")
    for case in cases():
        n = int(options.smallest)
        while options.only in case.name and n <= options.largest:
            eager, program, reference = errors(case, n, options.device, 8 if n <= 100_000 else 1)
            worst = float(np.nanmax([eager, program])) if np.isfinite([eager, program]).all() else float("inf")
            passes = worst <= allowed(case, reference)
            failures += not passes
            ratio = worst / max(reference, case.unit)
            print(f"{case.name:42} {n:9.0e} {eager:9.1e} {program:9.1e} {reference:9.1e} {ratio:6.2f}"
                  f"{'' if passes else '  ABOVE'}", flush=True)  # fmt: skip
            n *= 10
    print(f"{failures} errors above twice torch's")
    return int(failures > 0)


if __name__ == "__main__":
    raise SystemExit(main())
