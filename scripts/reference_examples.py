"""`python -m scripts.reference_examples [NAME ...]`: record an example of each public operator for the reference pages.

An example is made from a sample of the generic tests: the smallest one whose values fit into a few lines, or else one
whose shapes are shown. The record, docs/reference/examples.json, is what `scripts.src_codegen` writes into the pages;
the tests of pages run it. Run this after new operators or samples.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import meta
from meta import dtype as dtypes
from meta.op import registry
from meta.op.registry import Op
from meta.testing.call import is_sequence
from meta.testing.samples import Sample, T, leaves
from scripts.src_codegen.docs import RECORD, is_internal, recorded
from tests.python.op.samples import samples

_SIZE, _ELEMENTS = 3, 12
"""Tensors of more elements are random, and examples show the shape of their result."""


def examples(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(operator, example with output) of public operators."""
    rows: dict[str, list[Sample]] = {}
    for row in samples():
        rows.setdefault(row.op, []).append(row)
    for op in registry.all_ops():
        if not is_internal(op) and (not names or op.name in names):
            ordered = sorted(rows.get(op.name, ()), key=_preference)
            found = (_example(op, shrunk) for row in ordered for shrunk in (*_shrunk(row), row))
            example = next(filter(None, found), "")
            if example:
                yield op.name, example


def _preference(row: Sample) -> tuple[bool, bool, int, int]:
    """Plain dtypes come first, then tensors of several elements, then few axes and about six elements in all."""
    tensors = list(leaves(row.args, row.kwargs))
    is_plain = all(t.dtype in ("float32", "int64", "bool") and abs(t.low) <= 5 and abs(t.high) <= 5 for t in tensors)
    counts = [int(np.prod([min(size, _SIZE) for size in t.shape])) for t in tensors]
    axes = max((max(len(t.shape), 2) for t in tensors), default=0)
    return not is_plain, min(counts, default=2) < 2, axes, abs(sum(counts) - 6)


def _shrunk(row: Sample) -> Iterator[Sample]:
    """The sample with smaller sizes, equal ones staying equal, if its tensors are too large for an example."""
    if all(np.prod(t.shape) <= _ELEMENTS for t in leaves(row.args, row.kwargs)):
        return
    for largest in (_SIZE, 2):
        args, kwargs = row.map(lambda t, _, largest=largest: _with_sizes(t, largest))
        yield Sample(row.op, *args, check=print, id=row.id, **kwargs)


def _with_sizes(t: T, largest: int) -> T:
    shape = (min(size, largest) for size in t.shape)
    return T(*shape, dtype=t.dtype, low=t.low, high=t.high, avoid=t.avoid, distinct=t.distinct, definite=t.definite)


def _example(op: Op, row: Sample) -> str:
    """The code of a call and its output, "" if the call does not run by its public name."""
    lines: list[str] = []
    is_small = all(np.prod(t.shape) <= _ELEMENTS for t in leaves(row.args, row.kwargs))

    def assigned(name: str, value: Any) -> str:
        if isinstance(value, T):
            lines.append(f"{name} = {_tensor(value, f'{row}/{name}')}")
            return name
        if is_sequence(value) and leaves(tuple(value), {}):
            return f"[{', '.join(assigned(f'{name}{i}', each) for i, each in enumerate(value, 1))}]"
        return repr(value)

    arguments = [assigned(name, value) for name, value in zip(op.schema.names, row.args, strict=False)]
    arguments += [f"{name}={assigned(name, value)}" for name, value in row.kwargs.items()]
    call = f"meta.{op.name}({', '.join(arguments)})"
    namespace: dict[str, Any] = {"meta": meta}
    try:
        with meta.with_dialect("reference"):
            exec("\n".join(lines), namespace)
            result: Any = eval(call, namespace)
            is_pair = is_sequence(result)
            first: Any = result[0] if is_pair else result
            if not hasattr(first, "shape"):
                lines.append(call)
                output = repr(result)
            elif is_small and not is_pair and 0 < result.size <= 2 * _ELEMENTS:
                lines.append(f"print({call})")
                output = str(result)
            else:
                lines.append(f"[y.shape for y in {call}]" if is_pair else f"{call}.shape")
                output = repr(eval(lines[-1], namespace))
        if 0 in np.ravel(getattr(result, "shape", 1)):
            return ""
    except (meta.errors.MetaError, AttributeError, TypeError, ValueError, IndexError):
        return ""
    return "".join(f">>> {line}\n" for line in lines) + output + "\n"


def _tensor(t: T, seed: str) -> str:
    """The code of a tensor: its values, rounded, or random ones of its shape."""
    if np.prod(t.shape) > _ELEMENTS and dtypes.is_float(t.dtype) and not t.definite:
        return f"meta.random.normal({t.shape!r})"
    values = t.values("", seed)
    rounded = np.round(values.astype("float64"), 2) if dtypes.is_float(t.dtype) else values
    dtype = "" if t.dtype in ("float32", "int64", "bool") else f', dtype="{t.dtype}"'
    if values.size == 0:
        return f'meta.zeros({t.shape!r}, dtype="{t.dtype}")'
    return f"meta.array({rounded.tolist()!r}{dtype})"


def main(names: Sequence[str]) -> None:
    """Record examples, of all operators if no names are given."""
    record = {**(recorded() if names else {}), **dict(examples(names))}
    RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    missing = [op.name for op in registry.all_ops() if not is_internal(op) and op.name not in record]
    print(f"{len(record)} examples; none for {', '.join(missing) or 'no operator'}")


if __name__ == "__main__":
    main(sys.argv[1:])
