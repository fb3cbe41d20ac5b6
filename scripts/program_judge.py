"""Runs a program of the fuzzer eagerly, interpreted and compiled, and compares results, arguments and state."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast
from unittest.mock import patch

import numpy as np

import meta
from meta.eager.call import invoke
from meta.errors import ArgumentError, MetaError, SymbolicSizeError
from meta.interpreter import run as interpreter
from meta.ir.expr import MUTATES
from meta.random import default_generator

WAYS: Final = ("interpreter", "compiled", "budget")
_LARGEST: Final = 1e9
"""Programs with larger values are skipped: rounding decides about them."""
_TOLERANCES: Final = {"float64": 1e-9, "float32": 3e-5, "float16": 0.03, "bfloat16": 0.1}
"""Allowed differences, relative to the largest element, besides the effect of rounded arguments."""
_STEPS: Final = {"float64": 1e-13, "float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}
_SAMPLES: Final = 8
"""Further runs with rounded arguments, to tell whether a difference is more than rounding."""
_ROUNDED_SAMPLES: Final = 3
"""Runs in which the result of each sum is rounded otherwise: a variance of equal numbers is then no longer 0."""
_WITHOUT_SUMS: Final = ("elemwise", "broadcast", "injective")
_LEAST: Final = re.compile(r"at least ([\d,]+) bytes")

Arrays = dict[str, np.ndarray[Any, Any]]
"""What a call leaves: results, arguments and state by name."""
Calls = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """A way to run a program that is wrong. way: "interpreter", "compiled", "opened" (by calls of other sizes) or
    "budget"; kind: "results", "state" or the name of an error; text: the first difference, or the error."""

    way: str
    kind: str
    text: str
    options: str = ""

    def __str__(self) -> str:
        return f"{self.way}{self.options}: {self.kind}: {self.text}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """outcome: "same", "wrong", "large values", "sensitive" (to rounding), "needs known sizes", or the error of the
    eager call."""

    outcome: str
    findings: tuple[Finding, ...] = ()


def judge(source: str, ways: Sequence[str] = WAYS, every: bool = True) -> Verdict:
    """Run the program that `make()` in `source` gives. ways: the ways to run it that are judged; every: go on after
    the first finding."""
    space: dict[str, Any] = {}
    exec(compile(source, "<program>", "exec"), space)
    calls = len(space["SIZES"])
    try:
        with np.errstate(all="ignore"):
            expected = list(_run(space, calls, _eager))
            moved = list(_run(space, calls, _eager, moved=1))
    except MetaError as error:
        return Verdict(f"eager {type(error).__name__}")
    if not all(np.isfinite(x).all() and np.abs(x).max(initial=0) < _LARGEST for c in expected for x in c.values()):
        return Verdict("large values")
    bounds = Bounds(source, space, expected, moved)
    findings: list[Finding] = []
    try:
        for finding in _ways(space, calls, bounds, ways):
            if finding.way in ways:
                findings.append(finding)
            if not every:
                break
    except SymbolicSizeError:
        return Verdict("needs known sizes")
    sensitive = any(a > 0.1 for call in bounds.allowed for a in call.values())
    return Verdict("wrong" if findings else "sensitive" if sensitive else "same", tuple(findings))


def _eager(function: Calls) -> Calls:
    return function


class Bounds:
    """The largest difference that rounding explains, of each array of each call, relative to its largest element or 1.

    It is estimated from a run of the eager program with slightly other arguments, `sample`. A comparison of values that
    are nearly equal, or an overflow inside of an operator, comes out otherwise in a few of many runs only, or in the
    run in float64. Hence there are more runs before a difference counts; their effect is multiplied by less, as the
    largest of many is."""

    def __init__(
        self, source: str, space: dict[str, Any], expected: Sequence[Arrays], sample: Sequence[Arrays]
    ) -> None:
        self.source, self.space, self.expected, self.is_final = source, space, expected, False
        tolerances = (t for dtype, t in _TOLERANCES.items() if f"'{dtype}'" in source or dtype == "float64")
        self.tolerance = max(tolerances)
        self.allowed = [dict.fromkeys(call, self.tolerance) for call in expected]
        self._widen(sample, 30.0)

    def difference(self, number: int, call: Arrays) -> str:
        """The first array of a call that differs by more than rounding, "" if none does."""
        problem = _difference(self.expected[number], call, self.allowed[number])
        if problem and not self.is_final:
            self.is_final = True
            for seed in range(2, 2 + _SAMPLES):
                self._widen(self._sample(self.space, seed), 3.0)
            self._widen(self._sample(_in_float64(self.source), 0), 3.0)
            plain = self._sample(self.space, 0, _interpreted)
            for seed in range(_ROUNDED_SAMPLES):
                self._widen(self._sample(self.space, 0, partial(_rounded, seed=seed)), 3.0, plain)
            problem = _difference(self.expected[number], call, self.allowed[number])
        return problem

    def _sample(self, space: dict[str, Any], seed: int, wrap: Callable[[Calls], Calls] = _eager) -> list[Arrays]:
        try:
            with np.errstate(all="ignore"):
                return list(_run(space, len(self.expected), wrap, moved=seed))
        except MetaError:
            return []

    def _widen(self, sample: Sequence[Arrays], factor: float, plain: Sequence[Arrays] | None = None) -> None:
        """plain: the run that differs from `sample` by its roundings alone."""
        for call, other, allowed in zip(plain or self.expected, sample, self.allowed, strict=False):
            for name in call.keys() & other.keys():
                allowed[name] = max(allowed[name], self.tolerance + factor * _relative(call[name], other[name]))


def _in_float64(source: str) -> dict[str, Any]:
    """The program in float64, as far as it chooses its dtype."""
    space: dict[str, Any] = {}
    exec(compile(re.sub(r"'(float32|float16|bfloat16)'", "'float64'", source), "<program>", "exec"), space)
    return space


def _ways(space: dict[str, Any], calls: int, bounds: Bounds, ways: Sequence[str]) -> Iterator[Finding]:
    """The findings of the ways to run the program. Raises SymbolicSizeError where a symbolic size is refused."""
    options: dict[str, Any] = dict(space["OPTIONS"])
    stated = {"dynamic": space["DYNAMIC"]} if space["DYNAMIC"] else {}

    def attempt(way: str, wrap: Calls, **shown: Any) -> Finding | None:
        text = "".join(f" {k}={v}" for k, v in shown.items())
        try:
            # All calls first: the bounds may run the program too, with the same generator of random numbers.
            for number, call in enumerate(list(_run(space, calls, wrap))):
                if problem := bounds.difference(number, call):
                    kind = "results" if problem.startswith("result") else "state"
                    return Finding(way, kind, f"call {number}: {problem}", text)
        except SymbolicSizeError:
            raise
        except MetaError as error:
            return Finding(way, type(error).__name__, str(error).split("\n")[0][:200], text)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            return Finding(way, type(error).__name__, traceback.format_exc(limit=-2)[-300:], text)
        return None

    found = attempt("interpreter", _interpreted) if "interpreter" in ways else None
    if found is not None:
        yield found
    if not {"compiled", "budget"}.intersection(ways):
        return
    executors: list[Any] = []

    def compiled(function: Calls, **more: Any) -> Calls:
        executors.append(meta.vm.compile(meta.trace(function), **options, **more))
        return executors[-1]

    found = attempt("compiled", partial(compiled, **stated), **space["OPTIONS"])
    if found is None and stated:  # calls open the sizes that are not stated
        found = attempt("opened", compiled, **space["OPTIONS"])
    if found is not None:
        yield found
    elif space["BUDGETS"] and "budget" in ways:
        for budget in _budgets(space, executors[-1], options):
            found = attempt("budget", partial(compiled, memory_budget=budget), memory_budget=budget)
            if found is not None:
                yield found
                return  # lower and higher budgets mostly repeat it


def _budgets(space: dict[str, Any], executor: Any, options: dict[str, Any]) -> list[int]:
    """Numbers of bytes at the program's levels between the least and all; none where the two are equal."""
    function, _, arguments = space["make"]()
    inputs = arguments(0)
    with meta.no_grad():
        total = executor.memory(*inputs).total
        try:
            meta.vm.compile(meta.trace(function), **options, memory_budget=1).program(*inputs)
        except ArgumentError as error:
            match = _LEAST.search(str(error))
            if match is not None and (least := int(match[1].replace(",", ""))) < total:
                return sorted({int(least + level * (total - least)) for level in space["BUDGETS"]})
        except MetaError:
            pass
    return []


def _run(space: dict[str, Any], calls: int, wrap: Calls, moved: int = 0) -> Iterator[Arrays]:
    """What each call leaves. wrap: function -> what is called; moved: a seed for slightly other arrays, 0 for none."""
    meta.random.seed(0)
    function, state, arguments = space["make"]()
    if moved:
        _move(state().values(), moved)
    call = wrap(function)
    for number in range(calls):
        inputs = arguments(number)
        if moved:
            _move(inputs, moved)
        with meta.no_grad():
            results = call(*inputs)
        named = {f"result {i}": x for i, x in enumerate(results)} | {f"argument {i}": x for i, x in enumerate(inputs)}
        yield {name: _values(x) for name, x in (named | state()).items()}


def _values(x: Any) -> np.ndarray[Any, Any]:
    return np.array(x.detach().cast("float64").numpy(), copy=True)


def _move(arrays: Any, seed: int) -> None:
    """Change floating arrays by about the rounding of their dtype."""
    rng = np.random.default_rng(seed)
    with meta.no_grad():
        for x in arrays:
            if x.dtype in _STEPS:
                factor = 1 + _STEPS[x.dtype] * rng.choice((-1.0, 1.0), x.shape)
                x.update(meta.array(_values(x) * factor, dtype=x.dtype))


def _interpreted(function: Calls) -> Calls:
    """The traced program on the interpreter, which writes state as a compiled program does."""

    def call(*inputs: Any) -> Any:
        record = meta.trace(function).record(*inputs)
        arrays = [*inputs, *(x for _, x in record.state)]
        arrays += [(draws.generator or default_generator).draw(count=draws.count) for draws in record.random]
        results = interpreter.run(record.module, *arrays)
        mutated = record.main.attrs.get(MUTATES, {})
        new = {position: meta.array(results[index].numpy(copy=True)) for index, position in mutated.items()}
        kept = [_copied(r) for i, r in enumerate(results) if i not in mutated]
        for position, value in new.items():
            arrays[position].update(value)
        return record.result.build(iter(kept))

    return call


def _rounded(function: Calls, seed: int) -> Calls:
    """The program on the interpreter, with about a rounding error in the results of operators that may sum."""
    rng, interpreted = np.random.default_rng(seed), _interpreted(function)

    def moved(x: Any) -> Any:
        if getattr(x, "dtype", "") not in _STEPS:
            return x
        return meta.array(_values(x) * (1 + _STEPS[x.dtype] * rng.choice((-1.0, 0.0, 1.0), x.shape)), dtype=x.dtype)

    def noisy(state: Any, *args: Any) -> Any:
        result: Any = invoke(state, *args)
        if state.op.pattern in _WITHOUT_SUMS:
            return result
        return tuple(map(moved, cast("tuple[Any, ...]", result))) if type(result) is tuple else moved(result)

    def call(*inputs: Any) -> Any:
        with patch.object(interpreter, "invoke", noisy):
            return interpreted(*inputs)

    return call


def _copied(x: Any) -> Any:
    return x.detach().copy()


def _relative(expected: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    if expected.shape != other.shape or not np.isfinite(other).all():
        return np.inf
    return float(np.abs(expected - other).max(initial=0) / max(1.0, np.abs(expected).max(initial=0)))


def _difference(expected: Arrays, call: Arrays, allowed: dict[str, float]) -> str:
    """The first array that differs, "" if none does."""
    if expected.keys() != call.keys():
        return f"state has {sorted(call)}, expected {sorted(expected)}"
    for name, x in expected.items():
        got = call[name]
        if got.shape != x.shape:
            return f"{name} has shape {got.shape}, expected {x.shape}"
        with np.errstate(all="ignore"):
            far = _relative(x, got)
        if not far <= allowed[name]:
            place = np.unravel_index(np.argmax(np.nan_to_num(np.abs(x - got), nan=np.inf)), x.shape) if x.size else ()
            return f"{name}{[*map(int, place)]} is {got[place]:.8g}, expected {x[place]:.8g} (off by {far:.1e})"
    return ""
