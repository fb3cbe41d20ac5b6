"""TE computes of optimiser steps, by the formulas of their decompositions.

Results overwrite the memory of arguments, so each argument element is read before or by the block that overwrites it:
first the states, then the parameter, computed from the new states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meta.backend.tvm.adapter import te
from meta.backend.tvm.intrinsic import Expr
from meta.backend.tvm.spec import Outs
from meta.backend.tvm.te.elementwise import accumulation_dtype, cast, element
from meta.op.dialect.tvm import Registrar
from meta.op.formulas import SOURCES, Term, computed, decomposition_of, operand, operands_first, recorded
from meta.op.registry import get

compute = Registrar(SOURCES).compute


def _register(name: str, *lift: str) -> None:
    """Register the step of an optimizer. lift: the numbers that eager kernels take at run time."""
    decomposition = decomposition_of(name).function
    roles = [arg.type.role for arg in get(name).schema.args]

    @compute(name, lift=lift, constants=(0,))
    def step(*args: Any, out: Outs) -> Any:
        shape, dtype = out[0].shape, accumulation_dtype(out[0].dtype)
        # Numbers that are tensors keep their dtype: float64 has digits of 1 - beta that float32 has not.
        operands = {
            operand(dtype if role == "tensor" else str(arg.dtype)): arg
            for role, arg in zip(roles, args, strict=True)
            if hasattr(arg, "shape")
        }
        terms = iter(operands)
        results = recorded(decomposition, *(next(terms) if hasattr(arg, "shape") else arg for arg in args))
        stages: dict[Term, Any] = {}

        def values(index: tuple[Any, ...]) -> Mapping[Term, Expr]:
            return {term: element(x, index, term.dtype) for term, x in (operands | stages).items()}

        def result(term: Term, stored: str) -> Any:
            return te.compute(shape, lambda *i: cast(computed(term, values(i)), stored), name)

        states = dict(zip(results[1:], out[1:], strict=True))
        for term in sorted(states, key=lambda term: len(set(operands_first(term, {})))):  # those that others read first
            stages[term] = result(term, states[term].dtype)
        return result(results[0], out[0].dtype), *(stages[term] for term in states)


_register("sgd", "momentum", "weight_decay")
_register("adam", "beta1", "beta2", "eps", "weight_decay")
_register("amsgrad", "beta1", "beta2", "eps", "weight_decay")
_register("adagrad", "eps", "weight_decay")
_register("rmsprop", "alpha", "eps", "weight_decay", "momentum")
_register("rmsprop_centered", "alpha", "eps", "weight_decay", "momentum")
