"""`python -m meta relay MODEL.relay --params MODEL.params --input data=image.npz`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from meta.dtype import is_float
from meta.errors import ArgumentError, NotSupportedError, did_you_mean
from meta.ir.analysis import op_counts
from meta.ir.expr import Call, FunctionExpr, Var
from meta.ir.type import TensorType
from meta.ir.visitor import walk
from meta.op.registry import Op
from meta.tree import named_leaves

_NAMED = 8
"""The most inputs drawn at random that are listed."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The program, its parameters and inputs."""
    parser.add_argument("model", type=Path, help="Relay text or JSON")
    parser.add_argument("--params", type=Path, help="parameters: .params (relay.save_param_dict) or .npz")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=FILE",
                        help="an input, from a .npy or .npz; drawn at random when not given (repeatable)")  # fmt: skip
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=2,3,224,224",
                        help="another shape for an input than the program's (repeatable)")  # fmt: skip
    parser.add_argument("--device", default="cpu", help='where it runs: "cpu" (default), "cuda", "cuda:1"')
    parser.add_argument("--seed", type=int, default=0, help="of inputs drawn at random (default: 0)")
    parser.add_argument("--repeat", type=int, default=5, help="timed calls (default: 5)")
    parser.add_argument("--interpreter", action="store_true", help="run operator by operator instead of on the VM")
    parser.add_argument(
        "--explain", action="store_true", help="list the program's operators, what it became, and which kernels run it"
    )


def run(options: argparse.Namespace) -> int:
    """Import, run, and print outputs and timings."""
    import meta
    from meta.frontend.relay import examine
    from meta.frontend.relay.api import imported

    if options.explain:
        for use in examine(options.model):
            print(f"  {'ok ' if use.supported else 'NOT'} {use.name:28} {use.count:4} on lines {_lines(use.lines)}")
    start = time.perf_counter()
    program = imported(options.model, options.params, _shapes(options.shape), options.device)
    seconds = time.perf_counter() - start
    calls = sum(op_counts(program.module.main).values())
    print(f"imported {options.model.name} in {seconds * 1e3:.0f} ms: {calls} operator calls")
    if options.explain:
        print(program.module)
    inputs = [meta.array(x, device=options.device) for x in _inputs(options, program.inputs, program.module.main)]
    executor = meta.vm.compile(program.module, options.device)

    def call() -> Any:
        out = meta.interpreter.run.run(program.module, *inputs) if options.interpreter else executor(*inputs)
        meta.synchronize(options.device)
        return out

    start = time.perf_counter()
    result = call()
    print(f"first call (compiles) {(time.perf_counter() - start) * 1e3:.0f} ms")
    times: list[float] = []
    for _ in range(options.repeat):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    if times:
        print(f"then {float(np.median(times)) * 1e3:.2f} ms a call (median of {len(times)})")
    _show("output", result)
    if options.explain and not options.interpreter:
        print(executor.explain(*inputs))
    return 0


def _lines(lines: tuple[int, ...]) -> str:
    return ", ".join(map(str, lines[:8])) + (", ..." if len(lines) > 8 else "")


def _pairs(items: list[str], option: str) -> dict[str, str]:
    """`NAME=VALUE` options as a dict."""
    out: dict[str, str] = {}
    for item in items:
        name, sign, value = item.partition("=")
        if not sign:
            raise ArgumentError("relay", f"{option} {item}", f"{option} NAME=VALUE")
        out[name] = value
    return out


def _shapes(items: list[str]) -> dict[str, tuple[int, ...]] | None:
    try:
        return {n: tuple(int(d) for d in v.split(",") if d) for n, v in _pairs(items, "--shape").items()} or None
    except ValueError:
        raise ArgumentError("relay", f"--shape {items}", "--shape NAME=1,3,224,224") from None


def _inputs(options: argparse.Namespace, names: tuple[str, ...], main: FunctionExpr) -> list[Any]:
    """An array for each input, read from a file or drawn at random."""
    files = _pairs(options.input, "--input")
    for name in files:
        if name not in names:
            expected = f"one of {', '.join(names)}"
            raise ArgumentError("relay", f"there is no input '{name}'", expected, did_you_mean(name, names))
    rng, roles = np.random.RandomState(options.seed), _roles(main)
    out: list[Any] = []
    for name, param in zip(names, main.params, strict=True):
        kind = param.type
        if not isinstance(kind, TensorType) or not (kind.is_static or name in files):
            remedy = f"pass --input {name}=FILE, or --shape {name}=..."
            raise NotSupportedError("relay", f"the shape of '{name}' is open: {kind!r}", remedy=remedy)
        out.append(_read(files[name], name) if name in files else _drawn(rng, kind, roles.get(param, "")))
    drawn = [name for name in names if name not in files]
    if drawn:
        more = f" and {len(drawn) - _NAMED} more" if len(drawn) > _NAMED else ""
        print(f"drawn at random (seed {options.seed}): {', '.join(drawn[:_NAMED])}{more}")
    return out


def _roles(main: FunctionExpr) -> dict[Var, str]:
    """The argument name of each parameter in the first operator that computes with it, such as "w" or "running_var".
    Operators that only move elements do not count."""
    roles: dict[Var, str] = {}
    for binding in reversed(list(walk(main))):
        call = binding.value
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            continue
        for name, arg in zip(call.op.schema.names, call.args, strict=True):
            if isinstance(arg, Var):
                roles[arg] = roles.get(binding.var, "") if call.op.pattern == "injective" else name
    return roles


def _drawn(rng: np.random.RandomState, kind: TensorType, role: str) -> Any:
    """Standard normal numbers; parameters are scaled so that values in a deep network stay finite."""
    shape: Any = kind.shape
    if kind.dtype == "bool":
        return rng.rand(*shape) < 0.5
    if not is_float(kind.dtype):
        whole: Any = rng.randint(0, 8, size=shape)  # pyright: ignore[reportUnknownVariableType]
        return np.asarray(whole, kind.dtype)
    x: Any = np.asarray(rng.randn(*shape))
    if role == "running_var":
        x = 1 + np.abs(x) / 20
    elif role == "w":
        x = x / np.sqrt(x[0].size) if x.ndim > 1 else 1 + x / 20
    elif role in ("b", "bias", "running_mean"):
        x = x / 20
    return x.astype("float32" if kind.dtype == "bfloat16" else kind.dtype)


def _read(path: str, name: str) -> Any:
    """The array in a .npy, or in an .npz the one called `name` (or the only one)."""
    from meta.frontend.relay.params import read_npy, read_params

    if not path.endswith(".npz"):
        return read_npy(path)
    arrays = read_params(path)
    for each in (name, f"in_{name}", *(arrays if len(arrays) == 1 else ())):
        if each in arrays:
            return arrays[each]
    raise ArgumentError("relay", f"{path} has no array '{name}'", f"one of {', '.join(arrays)}")


def _show(name: str, value: Any) -> None:
    """A line for each tensor of the result, and its values."""
    for path, tensor in named_leaves(value, lambda v: not isinstance(v, tuple), name):
        values: Any = tensor.numpy()
        shown = np.array2string(values, precision=4, threshold=20, edgeitems=3, suppress_small=True)
        print(f"{path}: {tensor.type!r}\n{shown}")
