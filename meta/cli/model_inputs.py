"""Inputs of imported programs: read from files, or drawn at random."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from meta.backend.memory.allocation import host_memory
from meta.dim import compute, names
from meta.dtype import array_bytes, is_complex, is_float
from meta.errors import ArgumentError, FileError, NotSupportedError, did_you_mean
from meta.ir.expr import Call, FunctionExpr, Var
from meta.ir.type import TensorType
from meta.ir.visitor import walk
from meta.op.registry import Op


def pairs(items: Sequence[str], option: str, example: str) -> dict[str, str]:
    """`NAME=VALUE` options as a dict. example: a value, for the error about an option without one."""
    out: dict[str, str] = {}
    for item in items:
        name, sign, value = item.partition("=")
        if not sign:
            raise ArgumentError(
                "import", f"{option} {item}", f"{option} NAME=VALUE", f"write {option} {item}={example}"
            )
        out[name] = value
    return out


def sizes(items: Sequence[str]) -> dict[str, int]:
    """`--size batch=2` options: numbers from 0 by the names of symbolic sizes."""
    size_of = pairs(items, "--size", "2")
    for name, value in size_of.items():
        if not value.isdecimal():
            raise ArgumentError("import", f"--size {name}={value}", "a number from 0, as in --size batch=2")
    return {name: int(value) for name, value in size_of.items()}


def shapes(items: Sequence[str]) -> dict[str, tuple[int, ...]] | None:
    """`--shape x=1,3,224,224` options; None without any."""
    try:
        text_of = pairs(items, "--shape", "1,3,224,224")
        return {name: tuple(int(d) for d in value.split(",") if d) for name, value in text_of.items()} or None
    except ValueError:
        raise ArgumentError("import", f"--shape {' '.join(items)}", "--shape NAME=1,3,224,224") from None


def arrays(
    main: FunctionExpr, inputs: tuple[str, ...], files: Mapping[str, str], sizes: Mapping[str, int], seed: int
) -> list[Any]:
    """An array for each of the first parameters of main.

    inputs: their names.  files: of arrays, by name; the other inputs are drawn at random.  sizes: the symbolic ones."""
    named = 8  # The most inputs drawn at random that are listed.
    for name in files:
        if name not in inputs:
            expected = f"one of {', '.join(inputs)}"
            raise ArgumentError("import", f"there is no input '{name}'", expected, did_you_mean(name, inputs))
    params = main.params[: len(inputs)]
    drawn = {name: param for name, param in zip(inputs, params, strict=True) if name not in files}
    _check_sizes(main, drawn, sizes)
    rng, roles = np.random.RandomState(seed), _roles(main)
    out: list[Any] = []
    for name, param in zip(inputs, params, strict=True):
        if name in files:
            out.append(_read(files[name], name))
        else:
            kind = _tensor(name, param)
            shape = _numbers(kind.shape, sizes)
            _check_memory(name, shape)
            out.append(_draw(rng, shape, kind.dtype, roles.get(param, "")))
    if drawn:
        more = f" and {len(drawn) - named} more" if len(drawn) > named else ""
        print(f"drawn at random (seed {seed}): {', '.join(list(drawn)[:named])}{more}")
    return out


def _tensor(name: str, param: Var) -> TensorType:
    if not isinstance(param.type, TensorType):
        raise NotSupportedError("import", f"the input '{name}' is {param.type!r}", "tensors as inputs")
    return param.type


def _check_sizes(main: FunctionExpr, drawn: Mapping[str, Var], sizes: Mapping[str, int]) -> None:
    """Raise unless `sizes` has the symbolic sizes of the inputs to draw, and no others."""
    kinds = [param.type for param in main.params if isinstance(param.type, TensorType)]
    symbols = sorted({symbol for kind in kinds for size in kind.shape for symbol in names(size)})
    unknown = [name for name in sizes if name not in symbols]
    if unknown:
        expected = f"one of {', '.join(symbols)}" if symbols else "none: all sizes are numbers"
        raise ArgumentError(
            "import", f"there is no symbolic size '{unknown[0]}'", expected, did_you_mean(unknown[0], symbols)
        )
    for name, param in drawn.items():
        kind = _tensor(name, param)
        missing = sorted({symbol for size in kind.shape for symbol in names(size)} - sizes.keys())
        if missing:
            options = " ".join(f"--size {symbol}=..." for symbol in missing)
            remedy = f"pass {options}, or --input {name}=FILE"
            raise NotSupportedError("import", f"the shape of '{name}' is open: {kind!r}", "known sizes", remedy)


def _check_memory(name: str, shape: tuple[int, ...]) -> None:
    """Raise ArgumentError for an input that does not fit in memory while it is drawn, in float64."""
    size, memory = array_bytes(shape, 8), host_memory()
    if size is None or size > memory:
        raise ArgumentError(
            "import", f"the input '{name}' of shape {shape} cannot be drawn at random",
            f"at most {memory:,} bytes, the memory of this machine", "pass smaller sizes: --size, --shape",
        )  # fmt: skip


def _numbers(shape: Sequence[Any], sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(d if isinstance(d, int) else compute(d, sizes.__getitem__, int, int.__floordiv__, min) for d in shape)


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


def _draw(rng: np.random.RandomState, shape: tuple[int, ...], dtype: str, role: str) -> Any:
    """Standard normal numbers; parameters are scaled so that values in a deep network stay finite."""
    if dtype == "bool":
        return rng.random_sample(shape) < 0.5
    if not is_float(dtype) and not is_complex(dtype):
        whole: Any = rng.randint(0, 8, size=shape)
        return np.asarray(whole, dtype)
    x: Any = np.asarray(rng.standard_normal(shape))
    if is_complex(dtype):
        x = x + 1j * np.asarray(rng.standard_normal(shape))
    if role == "running_var":
        x = 1 + np.abs(x) / 20
    elif role == "w":
        x = x / np.sqrt(x[0].size) if x.ndim > 1 else 1 + x / 20
    elif role in ("b", "bias", "running_mean"):
        x = x / 20
    return x.astype("float32" if dtype == "bfloat16" else dtype)


@contextmanager
def errors_of_files() -> Generator[None]:
    """Raises errors of files of arrays as FileError: the model need not be one of Relay, whose readers read them."""
    from meta.frontend.relay.errors import RelayError

    try:
        yield
    except RelayError as error:
        raise FileError("import", error.problem, error.expected) from error


def _read(path: str, name: str) -> Any:
    """The array in a .npy, or in an .npz the one called `name` (or the only one)."""
    from meta.frontend.relay.params import read_npy, read_params

    with errors_of_files():
        if not path.endswith(".npz"):
            return read_npy(path)
        arrays = read_params(path)
    for each in (name, f"in_{name}", *(arrays if len(arrays) == 1 else ())):
        if each in arrays:
            return arrays[each]
    raise ArgumentError("import", f"{path} has no array '{name}'", f"one of {', '.join(arrays)}")
