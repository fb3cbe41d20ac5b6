"""What C code has to know of a program: its arguments and results, and whether machine code is all that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, NotSupportedError
from meta.ir.type import TensorType
from meta.vm.lower.choose import Source, output_types
from meta.vm.program import Program


def arguments(program: Program) -> list[tuple[str, str, NDArray | None]]:
    """(role, name, array that the program has) of each argument of "main": inputs, state, random keys, constants."""
    record = program.record
    return [
        *(("input", name, None) for name in record.inputs),
        *(("state", name, x) for name, x in record.state),
        *(("random", f"key.{i}", None) for i in range(len(record.random))),
        *(("constant", f"constant.{i}", x) for i, x in enumerate(program.constants)),
    ]


def describe(program: Program) -> dict[str, Any]:
    """The arguments and the results of "main", in order, as JSON."""
    source = program.source
    updated = set(source.mutates.values())
    described = [
        {"name": name, "role": role, **_type(p.type), "updated": i in updated}
        for i, ((role, name, _), p) in enumerate(zip(arguments(program), source.main.params, strict=True))
    ]
    return {
        "device": str(source.device),
        "arguments": described,
        "results": [_type(t) for t in output_types(source)],
    }


def _type(kind: Any) -> dict[str, Any]:
    assert isinstance(kind, TensorType)
    return {"dtype": kind.dtype, "shape": [d if isinstance(d, int) else str(d) for d in kind.shape]}


def only_program(name: str, programs: Sequence[Program]) -> Program:
    """The program of an executor that is compiled for one combination of arguments. Raises ArgumentError for others."""
    if len(programs) != 1:
        raise ArgumentError(
            "save", f"{name} is compiled for {len(programs)} combinations of arguments", "one for a library",
            "compile it anew and call executor.program(...) once",
        )  # fmt: skip
    return programs[0]


def check_kernels(source: Source) -> None:
    """Raise NotSupportedError for a program that calls functions other than its own kernels."""
    called = sorted({choice.implementation.name for choice in source.choices.packed().values()})
    if called:
        raise NotSupportedError(
            "save", f"the program calls {', '.join(called[:5])}", "only kernels of TVM in a library",
            'compile it inside meta.with_dialect("tvm") or with `target`, or save it as a program',
        )  # fmt: skip
