"""Compares all ways to run random functions with writes in place, modes, views, branches, loops and derivatives.

    python -m scripts.fuzz_writes 10000 --vm 1000       functions 0 to 9999 of seed 0, the first 1000 compiled too
    python -m scripts.fuzz_writes 1 --seed 3 --only 17  one of them, with its text

Eager code, the traced program on the interpreter, and the compiled program have to give the results, the values of
arguments and state, and the gradients of `backward` inside and outside of the function that the model in torch has
(`scripts/write_model.py`), or raise GradientError where eager code may: for values that a gradient saved and that were
overwritten under `no_grad`, and, in eager code, for views that would not follow. A program computes whatever eager code
computes.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import torch

import meta
from meta.errors import GradientError, MetaError
from meta.interpreter.run import run as interpret
from meta.ir.expr import MUTATES
from scripts import fuzzing, write_model
from scripts.write_functions import Function, random_function

_TOLERANCE: Final = 1e-9
_LARGEST: Final = 1e8
_REFUSALS: Final = ("was modified in place", "shares its memory", "which the compiled program overwrites")
"""What the error says where eager code or torch refuses."""

Arrays = dict[str, np.ndarray[Any, Any]]


def _meta_vjp(f: Callable[..., Any], x: Any) -> tuple[Any, Any]:
    y, pullback = meta.autograd.vjp(f, x)
    return y, pullback(meta.ones(y.shape, dtype=y.dtype))[0]


def _meta_grad(y: Any, leaves: Sequence[Any], create_graph: bool) -> tuple[Any, ...]:
    y = y.sum()
    if not y.requires_grad:
        return tuple(meta.zeros(x.shape, dtype=x.dtype) for x in leaves)
    found = meta.autograd.grad([y], leaves, retain_graph=True, create_graph=create_graph, allow_unused=True)
    return tuple(meta.zeros(x.shape, dtype=x.dtype) if g is None else g for g, x in zip(found, leaves, strict=True))


def _meta_backward(y: Any, leaves: Sequence[Any]) -> None:
    del leaves
    y = y.sum()
    if y.requires_grad:
        y.backward(retain_graph=True)


def _meta_jvp(f: Callable[..., Any], x: Any, tangent: Any) -> tuple[Any, Any]:
    return meta.autograd.jvp(f, (x,), (tangent,))


def _meta_vmap(f: Callable[..., Any], x: Any, shared: Any) -> Any:
    return meta.autograd.vmap(f, (0, None))(x, shared)


def _meta_while(condition: Any, body: Any, carry: Any, most: int) -> Any:
    return meta.while_loop(condition, body, carry, max_steps=most)


def _meta_zeros(shape: Sequence[int]) -> Any:
    return meta.zeros(tuple(shape), dtype="float64")


META: Final = SimpleNamespace(
    zeros=_meta_zeros, tanh=meta.tanh, sin=meta.sin, square=meta.square, cond=meta.cond, scan=meta.scan,
    while_loop=_meta_while, no_grad=meta.no_grad, enable_grad=meta.enable_grad, backward=_meta_backward,
    grad=_meta_grad, vjp=_meta_vjp, jvp=_meta_jvp, vmap=_meta_vmap,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """A way to run a function that is wrong. text: the first difference, or the error."""

    way: str
    text: str


def _data(function: Function) -> Arrays:
    named = {**function.arguments, **function.state}
    return {n: np.random.default_rng(i).integers(-6, 7, shape) / 4 for i, (n, (shape, _)) in enumerate(named.items())}


def _expected(function: Function, code: Callable[..., Any]) -> Arrays | None:
    """What the model leaves; None if values are too large to compare."""
    tensors: dict[str, write_model.Tensor] = {}
    for name, host in _data(function).items():
        leaf = {**function.arguments, **function.state}[name][1]
        value = torch.tensor(host, dtype=torch.float64, requires_grad=leaf)
        tensors[name] = write_model.Tensor(value, leaf=value if leaf else None)
    results = code(write_model, *tensors.values())
    out = {f"result {i}": y.value for i, y in enumerate(results)}
    out |= {name: x.value for name, x in tensors.items()}
    out |= {f"{n}.grad inside": _zeros(x.total, x.leaf) for n, x in tensors.items() if x.leaf is not None}
    loss = sum(((y.value * (i + 1.5)).sum() for i, y in enumerate((*results, *tensors.values()))), torch.zeros(()))
    for name, x in tensors.items():
        if x.leaf is not None:
            (gradient,) = (
                torch.autograd.grad(loss, [x.leaf], retain_graph=True, allow_unused=True)
                if loss.requires_grad
                else (None,)
            )
            out[f"{name}.grad outside"] = _zeros(gradient, x.leaf)
    arrays = {name: value.detach().numpy() for name, value in out.items()}
    small = all(np.isfinite(a).all() and np.abs(a).max(initial=0) < _LARGEST for a in arrays.values())
    return arrays if small else None


def _zeros(gradient: Any, like: Any) -> Any:
    return torch.zeros_like(like) if gradient is None else gradient


def _arrays(function: Function) -> dict[str, Any]:
    leaves = {**function.arguments, **function.state}
    return {n: meta.array(host, dtype="float64", requires_grad=leaves[n][1]) for n, host in _data(function).items()}


def _found(function: Function, call: Callable[..., Any]) -> Arrays:
    """What a call on arrays leaves."""
    arrays = _arrays(function)
    inputs = [arrays[n] for n in function.arguments]
    results = call([arrays[n] for n in function.state])(*inputs)
    out = {f"result {i}": y.detach().numpy().copy() for i, y in enumerate(results)}
    out |= {name: x.detach().numpy().copy() for name, x in arrays.items()}
    leaves = {name: x for name, x in arrays.items() if x.is_leaf and x.requires_grad}
    for when in ("inside", "outside"):
        if when == "outside":
            loss: Any = meta.zeros((), dtype="float64")
            for i, y in enumerate((*results, *arrays.values())):
                loss = loss + (y * (i + 1.5)).sum()
            for x in leaves.values():
                x.grad = None
            if loss.requires_grad:
                loss.backward()
        for name, x in leaves.items():
            out[f"{name}.grad {when}"] = np.zeros(x.shape) if x.grad is None else x.grad.detach().numpy().copy()
    return out


def _interpreted(function: Function, code: Callable[..., Any]) -> Arrays:
    arrays = _arrays(function)
    names, state = [*arrays], [arrays[n] for n in function.state]
    record = meta.trace(lambda *xs: code(META, *xs, *state)).record(*(arrays[n] for n in function.arguments))
    held = [*(arrays[n] for n in function.arguments), *(x for _, x in record.state)]
    with meta.no_grad():
        run: Any = interpret(record.module, *held)
        results: list[Any] = list(run) if isinstance(run, (tuple, list)) else [run]  # pyright: ignore[reportUnknownArgumentType]
        written = record.main.attrs.get(MUTATES, {})
        own = [y for i, y in enumerate(results) if i not in written]
        out = {f"result {i}": y.detach().numpy().copy() for i, y in enumerate(own)}
        for index, position in written.items():
            held[position].update(results[index].detach().copy())
    return out | {name: arrays[name].detach().numpy().copy() for name in names}


def _difference(expected: Arrays, found: Arrays) -> str:
    for name, x in expected.items():
        if name not in found:
            continue
        y = found[name]
        if x.shape != y.shape:
            return f"{name} has shape {y.shape}, expected {x.shape}"
        if np.abs(x - y).max(initial=0) > _TOLERANCE * max(1.0, np.abs(x).max(initial=0)):
            return f"{name} is {y.tolist()}, expected {x.tolist()}"
    return ""


def judge(function: Function, compiled: bool) -> tuple[str, list[Finding]]:
    """How the function ended ("right", "refused", "large"), and what is wrong."""
    namespace: dict[str, Any] = {}
    exec(compile(function.source, "function", "exec"), namespace)
    code = namespace["function"]
    expected = _expected(function, code)
    if expected is None:
        return "large", []

    def bound(state: Sequence[Any]) -> Callable[..., Any]:
        def call(*xs: Any) -> Any:
            return code(META, *xs, *state)

        return call

    def program(state: Sequence[Any]) -> Callable[..., Any]:
        return meta.vm.compile(meta.trace(bound(state)))

    ways: dict[str, Callable[[], Arrays]] = {
        "eager": lambda: _found(function, bound),
        "interpreter": lambda: _interpreted(function, code),
    }
    if compiled:
        ways["compiled"] = lambda: _found(function, program)
    findings, refused = list[Finding](), set[str]()
    for way, run in ways.items():
        try:
            text = _difference(expected, run())
        except GradientError as error:
            text = str(error)
            if any(refusal in text for refusal in _REFUSALS) and (
                way == "eager" or "eager" in refused or "modified" in text
            ):
                refused.add(way)
                text = ""
        except MetaError as error:
            text = f"{type(error).__name__}: {error}"
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            text = traceback.format_exc(limit=-5)
        if text:
            findings.append(Finding(way, text))
    if refused - {"eager"} and "eager" not in refused:
        findings.append(Finding("program", "refused what eager code computes"))
    return "refused" if refused else "right", findings


def main(arguments: Sequence[str] | None = None) -> int:
    parser = fuzzing.parser("scripts.fuzz_writes", __doc__ or "")
    parser.add_argument("--vm", type=int, default=0, help="how many of the functions are compiled too")
    parser.add_argument("--only", type=int, help="judge this function alone, and print it")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    start, done, kinds = time.monotonic(), Counter[str](), Counter[str]()
    numbers = range(options.count) if options.only is None else [options.only]
    for index in numbers:
        function = random_function(options.seed, index)
        try:
            outcome, findings = judge(function, index < options.vm or options.only is not None)
        except Exception:  # noqa: BLE001 - an error of the model is a finding
            outcome, findings = "model", [Finding("model", traceback.format_exc(limit=-4))]
        done[outcome] += 1
        if options.only is not None:
            print(function.source, outcome)
        for finding in findings:
            kind = f"{finding.way}: {finding.text.splitlines()[-1][:60]}"
            kinds[kind] += 1
            print(f"function {index}, {finding.way}: {finding.text}", flush=True)
    seconds = time.monotonic() - start
    print(f"{sum(done.values())} functions in {seconds:.0f} s, {sum(kinds.values())} findings; {dict(done)}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
