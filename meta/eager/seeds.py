"""Where gradients start and end: the same checks and errors for the backward walks over the tape and over a trace.

The walks compute with `+` and with the three values here; everything else about a gradient is in its rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_complex
from meta.errors import ArgumentError, GradientError, TypeInferenceError
from meta.ir.type import TensorType
from meta.schema._dsl import TensorLike
from meta.tree import is_sequence


def zeros_of(kind: Any) -> Any:
    """A tensor full of zeros. kind: its type, or a tensor of that type."""
    return meta.zeros(kind.shape, dtype=kind.dtype, device=kind.device)


def ones_of(kind: Any) -> Any:
    """A tensor full of ones. kind: its type, or a tensor of that type."""
    return meta.ones(kind.shape, dtype=kind.dtype, device=kind.device)


def output_name(index: int, count: int) -> str:
    """How errors call one of several outputs."""
    return "the tensor" if count == 1 else f"output {index}"


def check_seedless(where: str, y: Any, name: str) -> None:
    """Raise GradientError unless an output that comes without a gradient, which is then 1, has a single element, which
    is real. Errors call it `name`."""
    if y.size != 1:
        raise GradientError(
            where,
            f"{name} has shape {y.shape} and no gradient was given",
            "a tensor with one element",
            "pass dy, or reduce with .sum()",
        )
    if is_complex(y.dtype):
        problem = f"{name} is {y.dtype} and no gradient was given"
        raise GradientError(where, problem, "a real tensor", "pass dy, or take meta.real(...) or abs(...) of it")


def add_up(a: Any, b: Any) -> Any:
    """The sum of two gradients, either of them None; of tuples of gradients, field by field."""
    if a is None or b is None:
        return b if a is None else a
    return [add_up(x, y) for x, y in zip(a, b, strict=True)] if isinstance(a, list) else a + b  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def apart(xs: Iterable[Any], around: Iterable[Any]) -> list[Any]:
    """Results of a transformation, None for some, as tensors that share no memory with each other or with tensors
    `around`, as a write to one of them would reach the others."""
    out: list[Any] = []
    known = {id(_memory(y)) for y in around if y is not None}
    for x in xs:
        own: Any = x
        if x is not None:
            is_shared = id(_memory(x)) in known
            if hasattr(x.__class__, "snapshot"):  # a value, without memory
                own = (meta.reshape(own, own.shape) if is_shared else own).snapshot()
            elif is_shared:
                own = own.copy()
            known.add(id(_memory(own)))
        out.append(own)
    return out


def _memory(x: Tensor) -> Any:
    """What all tensors over the memory of `x` refer to: their group or count of writes; `x` itself if it is alone."""
    shared = getattr(x, "aliases" if hasattr(x.__class__, "snapshot") else "_version")
    return x if shared is None else shared


def outputs_with_seeds(where: str, outputs: object, dys: object, kind: type = TensorLike) -> list[tuple[Any, Any]]:
    """Each output (of class `kind`) with the gradient that was passed for it, or None. Raises ArgumentError and
    GradientError."""
    ys = tensors(where, "outputs", outputs, kind)
    seeds = (None,) * len(ys) if dys is None else _sequence(where, dys)
    if len(seeds) != len(ys):
        raise GradientError(where, f"{len(seeds)} output gradients for {len(ys)} outputs", "one each")
    return list(zip(ys, seeds, strict=True))


def tensors(where: str, what: str, value: object, kind: type = TensorLike) -> tuple[Any, ...]:
    """One tensor of class `kind` or several, as a tuple. Raises ArgumentError for anything else."""
    listed: tuple[Any, ...] = tuple(value) if is_sequence(value) else (value,)
    for i, x in enumerate(listed):
        if not isinstance(x, kind):
            place = f" at {i}" if len(listed) > 1 else ""
            problem = f"{what} hold {type(x).__name__}{place}"
            raise ArgumentError(where, problem, "an NDArray, or a list or tuple of them")
    return listed


def _sequence(where: str, dys: object) -> tuple[Any, ...]:
    if is_sequence(dys):
        return tuple(dys)
    if isinstance(dys, TensorLike):
        return (dys,)
    raise wrong_seed(where, None, dys)


def wrong_seed(
    where: str, kind: TensorType | None, dy: object, name: str = "the tensor"
) -> ArgumentError | TypeInferenceError:
    """The error for a gradient `dy` that does not fit its output of type `kind`, which errors call `name`."""
    which = "dy" if name == "the tensor" else f"dy of {name}"
    if not isinstance(dy, TensorLike):
        expected = "an NDArray of the output's type"
        return ArgumentError(where, f"{which} is {type(dy).__name__}", expected, "wrap it: meta.array(...)")
    tensor: Any = dy
    return TypeInferenceError(
        where, f"{which} is {tensor.type!r}", f"the output's own type: {kind!r}", "reshape, cast or move dy"
    )


def check_used(gradients: Sequence[Any], allow_unused: bool) -> None:
    """Raise GradientError for an input that no gradient arrived at."""
    for i, gradient in enumerate(gradients):
        if gradient is None and not allow_unused:
            raise GradientError(
                "grad",
                f"input {i} was not used to compute the outputs",
                "inputs in the graph of the outputs",
                "pass allow_unused=True to get None",
            )


def freed(op: str) -> GradientError:
    """A second backward through what the first one freed."""
    return GradientError(
        op,
        "the graph was freed by an earlier backward",
        "one backward a graph",
        "pass retain_graph=True to the first one",
    )


def modified_error(op: str, shape: Sequence[Any], detail: str = "") -> GradientError:
    """A value that the gradient of `op` reads was written in place after it was saved."""
    return GradientError(
        op,
        f"a value of shape {tuple(shape)} that its gradient needs was modified in place{detail}",
        "values saved for backward to stay unchanged",
        "write to a copy, or call backward before the write",
    )


def no_graph(where: str, name: str) -> GradientError:
    """A gradient of (or with respect to) the tensor `name`, which depends on nothing that requires one."""
    remedy = {
        "the": "set requires_grad = True on an input, outside of no_grad()",
        "output": "leave it out, or set requires_grad = True on what it is computed from",
        "input": "set requires_grad = True on it before the outputs are computed",
    }[name.partition(" ")[0]]
    problem = f"{name} does not require grad and was not computed from one that does"
    return GradientError(where, problem, "a tensor in a gradient graph", remedy)


def check_replacement(gradient: Any, replaced: Any) -> None:
    """Raise GradientError unless what a hook returned can take the place of the gradient."""
    if not isinstance(replaced, type(gradient)) or replaced.type is not gradient.type:
        text = repr(replaced.type) if isinstance(replaced, Tensor) else type(replaced).__name__
        raise GradientError(
            "register_hook", f"a hook returned {text}", f"None or a tensor of the gradient's type {gradient.type!r}"
        )
