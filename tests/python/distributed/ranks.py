"""All ranks of a program in one process, operator by operator: NumPy computes the collectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import meta
from meta.interpreter.run import evaluate
from meta.ir.builder import Module
from meta.ir.expr import Call, Tuple, TupleGetItem, Var

_REDUCTIONS: Mapping[str, Callable[..., Any]] = {
    "sum": np.sum,
    "mean": np.mean,
    "max": np.max,
    "min": np.min,
    "product": np.prod,
}


def run_ranks(module: Module, inputs: Sequence[Sequence[Any]]) -> list[tuple[np.ndarray[Any, Any], ...]]:
    """The results of main on every rank, for programs without conditionals and loops.

    inputs: the arrays of every rank."""
    main = module.main
    values = [dict[Any, Any](zip(main.params, arrays, strict=True)) for arrays in inputs]
    for binding in main.body.bindings:
        value = binding.value
        if isinstance(value, Call) and value.op.family == "collective":  # type: ignore[union-attr]
            for own, result in zip(values, _collective(value, values), strict=True):
                own[binding.var] = meta.array(result)
            continue
        for own in values:
            if isinstance(value, Tuple):
                own[binding.var] = tuple(own[f] for f in value.fields)
            elif isinstance(value, TupleGetItem):
                own[binding.var] = own[value.value][value.index]
            else:
                assert isinstance(value, Call)
                own[binding.var] = evaluate(value, own)
    return [tuple(_number(own, atom) for atom in main.body.results) for own in values]


def _number(values: Mapping[Any, Any], atom: Any) -> np.ndarray[Any, Any]:
    return (values[atom] if isinstance(atom, Var) else evaluate(atom, values)).numpy()


def _collective(call: Call, values: Sequence[Mapping[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """The result of a collective on every rank of its group, which are all."""
    args = dict(zip(call.op.schema.names, call.args, strict=True))  # type: ignore[union-attr]
    count = len(values)
    assert args["ranks"] == count
    if call.op_name == "group_rank":
        return [np.array(rank, "int64") for rank in range(count)]
    every = [_number(own, args["x"]) for own in values]
    if call.op_name == "all_gather":
        return [np.concatenate(every, args["axis"])] * count
    total = _REDUCTIONS[args["reduction"]](every, axis=0).astype(every[0].dtype)
    return [total] * count if call.op_name == "all_reduce" else np.split(total, count, args["axis"])
