"""A compiled program as one C file, with its header and its weights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from meta.deploy.frames import ALIGNMENT, aligned, known_shape
from meta.deploy.functions import ProgramFunctions
from meta.deploy.objects import KernelObjects
from meta.deploy.processor import processor_check
from meta.deploy.tables import SlotPlace, TensorTables, array, unsupported
from meta.eager.ndarray import NDArray
from meta.eager.ndarray import array as to_array
from meta.errors import ArgumentError
from meta.ir.type import TensorType
from meta.random.generator import default_generator
from meta.records import record
from meta.vm.lower.calls import loops_of
from meta.vm.lower.choose import output_types
from meta.vm.plan.kernels import leaves
from meta.vm.program import Program

_MAX_AXES: Final = 8
"""META_MAX_AXES of meta_program.h."""
_VERSION: Final = 2
"""META_PROGRAM_VERSION of the meta_program.h that a program is written for."""
_ROLES: Final = {"input": "META_INPUT", "state": "META_STATE", "random": "META_RANDOM", "constant": "META_CONSTANT",
                 "result": "META_RESULT"}  # fmt: skip


@record(eq=False)
class ProgramParameter:
    """What a program takes, keeps or returns. array: the values that it has when it is written, on the host.
    updated: whether runs write to it."""

    name: str
    role: str
    type: TensorType
    array: NDArray | None = None
    updated: bool = False


@record(eq=False)
class ProgramText:
    """code, header: the text of the C file and of its header.  arena: bytes.  parameters: with the results.
    embeds: whether the code has the weights."""

    code: str
    header: str
    arena: int
    parameters: tuple[ProgramParameter, ...]
    embeds: bool = False

    @property
    def weights(self) -> list[ProgramParameter]:
        """The state, generators and constants that are loaded before the first run."""
        return [each for each in self.parameters if each.array is not None and not self.embeds]


def parameters_of(program: Program) -> tuple[ProgramParameter, ...]:
    """The parameters of "main", in order, and the results."""
    source, record = program.source, program.record
    updated = set(source.mutates.values())
    generators = [draws.generator or default_generator for draws in record.random]
    named: list[tuple[str, str, NDArray | None]] = [
        *((name, "input", None) for name in record.inputs),
        *((name, "state", x) for name, x in record.state),
        *((f"random.{i}", "random", to_array(_key(g))) for i, g in enumerate(generators)),
        *((f"constant.{i}", "constant", x) for i, x in enumerate(program.constants)),
    ]
    types: list[Any] = [p.type for p in source.main.params]
    rows = [
        ProgramParameter(name, role, kind, x, i in updated or role == "random")
        for i, ((name, role, x), kind) in enumerate(zip(named, types, strict=True))
    ]
    results: list[Any] = list(output_types(source))
    rows += [ProgramParameter(f"result.{i}", "result", kind, None, True) for i, kind in enumerate(results)]
    for each in rows:
        if each.type.ndim > _MAX_AXES:
            raise unsupported(f"'{each.name}' has {each.type.ndim} axes", f"at most {_MAX_AXES}")
    return tuple(rows)


def _key(generator: Any) -> Any:
    import numpy as np

    return np.array(generator.state, np.int64)


def identifier(name: str) -> str:
    """A name in C. Raises ArgumentError for one without a letter or digit, and for the name of the example."""
    text = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    if text in ("", "main"):
        raise ArgumentError(
            "deploy", f"the name of the program is {name!r:.80}", "letters, digits and '_', other than main"
        )
    return f"p{text}" if text[0].isdigit() else text


def emit(program: Program, objects: KernelObjects, name: str, *, embed: bool = False) -> ProgramText:
    """The program as C. name: an identifier, which the names of its symbols begin with.
    embed: with the values of its state and constants.

    Raises NotSupportedError, which names the function or operator, for recursive functions that are not loops, and for
    results whose sizes depend on the values of tensors."""
    if program.source.choices.open:
        names = ", ".join(sorted({call.op_name for call in program.source.choices.open}))
        raise unsupported(f"the sizes of the results of {names} depend on values", "sizes that follow from inputs")
    planned = objects.planned
    lists = {each.name: each for each in (planned.main, *planned.others)}
    loops = {loop.function_name: loop for loop in loops_of(program.source.module)}
    parameters = parameters_of(program)
    tables = TensorTables()
    functions = ProgramFunctions(tables, lists, loops, objects.calls, objects.symbols)
    main = functions.get("main")
    views = [
        tables.view(functions_place, main.sizes.shape(shape), len(shape), dtype)
        for functions_place, shape, dtype in _parameter_tensors(main, planned.main)
    ]
    measure, check = _measure(main, parameters), processor_check(objects.cpu)
    symbols = sorted(
        {objects.symbols[call.function] for each in lists.values() for call in each.calls if not call.packed}
    )
    used = [symbol for symbol in symbols if f" {symbol}," in functions.text()]
    weights = _weights(parameters) if embed else []
    draws = [str(each.count) for each in program.record.random] or ["0"]
    code = [
        f"/* {name}: written by meta, for {objects.cpu}. */",
        '#include "meta_runtime.h"',
        "",
        f'_Static_assert(sizeof(void *) == {_pointer_bytes(objects)}, "the kernels are for another machine");',
        "#define TRY(call) do { int status = (call); if (status) return status; } while (0)",
        "",
        *(f"extern meta_kernel {symbol};" for symbol in used),
        "",
        *_described(parameters),
        array("uint32_t", "parameter_views", map(str, views or [0])),
        tables.text(functions.bases()),
        array("int64_t", "keys", draws),
        *weights,
        *_constants(functions.constants),
        "",
        functions.text(),
        "",
        *measure,
        *check,
        _code_struct(name, objects, functions, parameters, measured=bool(measure), checked=bool(check), embed=embed),
    ]
    header = _header(name)
    return ProgramText("\n".join(code) + "\n", header, functions.arena(), parameters, embed)


def _parameter_tensors(main: Any, source: Any) -> list[tuple[Any, Any, str]]:
    """(place, shape, dtype) of the tensors of parameters and results, in their slots."""
    tensors = [o for _, value in source.parameters for o in leaves(value)] + list(leaves(source.result))
    shapes = [o.view if o.view is not None else known_shape(o.tensor) for o in tensors]
    slots = [*main.parameters, *main.results]
    return [(SlotPlace(slot), shape, o.tensor.dtype) for slot, shape, o in zip(slots, shapes, tensors, strict=True)]


def _pointer_bytes(objects: KernelObjects) -> int:
    return 4 if objects.cpu.architecture in ("armv7", "wasm32") else 8


def _described(parameters: Sequence[ProgramParameter]) -> list[str]:
    """The table of parameters."""
    rows: list[str] = []
    shapes: list[str] = []
    for each in parameters:
        start = len(shapes)
        shapes += [str(d if isinstance(d, int) else -1) for d in each.type.shape]
        row = (quoted(each.name), f"axes + {start}", str(each.type.ndim), f"META_{each.type.dtype.upper()}")
        rows.append(f"{{{', '.join((*row, _ROLES[each.role], str(int(each.updated))))}}}")
    return [array("int64_t", "axes", shapes or ["0"]), array("meta_parameter", "parameters", rows)]


def quoted(text: str) -> str:
    """A string in C."""
    data = text.encode()
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}" for b in data) + '"'


def _measure(main: Any, parameters: Sequence[ProgramParameter]) -> list[str]:
    """The function that sets the sizes of a run from its inputs."""
    shapes = [known_shape(o.tensor) for _, value in main.source.parameters for o in leaves(value)]
    lines: list[str] = []
    for i, axis, statement in main.solution:
        lines.append(statement.format(f"inputs[{i}].shape[{axis}]"))
    for i, shape in enumerate(shapes):
        for axis, dim in enumerate(shape):
            if not isinstance(dim, int):
                size, expected = f"inputs[{i}].shape[{axis}]", main.sizes.text(dim)
                text = f"axis {axis} of '%s' has the size %lld; expected %lld"
                lines += [
                    f"if ({size} != {expected})",
                    f'  return meta_fail(p, META_ERROR_SHAPE, "{text}", {quoted(parameters[i].name)},',
                    f"                   (long long){size}, (long long){expected});",
                ]
    lines += main.sizes.statements
    if not lines:
        return []
    return ["static int measure(meta_program *p, const meta_tensor *inputs) {", *("  " + x for x in lines),
            "  return META_OK;", "}", ""]  # fmt: skip


def _weights(parameters: Sequence[ProgramParameter]) -> list[str]:
    """The image of the block of state, generators and constants."""
    image = bytearray()
    for each in parameters:
        if each.array is not None:
            data = each.array.detach().numpy().tobytes()
            image += data.ljust(aligned(len(data)), b"\0")
    qualifier = f"static const _Alignas({ALIGNMENT})"
    return [array("uint8_t", "weights", map(str, image or b"\0"), qualifier=qualifier)]


def _constants(constants: Sequence[tuple[int, bytes]]) -> list[str]:
    qualifier = f"static const _Alignas({ALIGNMENT})"
    out = [
        array("uint8_t", f"constant_{slot}", map(str, data or b"\0"), qualifier=qualifier) for slot, data in constants
    ]
    rows = [f"{{{slot}, constant_{slot}}}" for slot, _ in constants]
    return [*out, array("struct meta_constant", "constants", rows or ["{0, NULL}"])]


def _code_struct(
    name: str, objects: KernelObjects, functions: ProgramFunctions, parameters: Sequence[ProgramParameter], *,
    measured: bool, checked: bool, embed: bool,
) -> str:  # fmt: skip
    tables = functions.tables
    fields = {
        "version": _VERSION, "pointer_bytes": _pointer_bytes(objects), "name": quoted(name),
        "target": quoted(str(objects.cpu)), "parameters": "parameters", "parameter_views": "parameter_views",
        "parameter_count": len(parameters), "result_count": sum(each.role == "result" for each in parameters),
        "slots": "slots", "views": "views", "arguments": "arguments", "sizes": "sizes", "keys": "keys",
        "weights": "weights" if embed else "NULL", "constants": "constants",
        "constant_count": len(functions.constants), "slot_count": tables.slots, "view_count": len(tables.views),
        "argument_count": len(tables.arguments), "size_count": len(tables.sizes), "opens": int(tables.opens),
        "arena": functions.arena(), "measure": "measure" if measured else "NULL",
        "run": functions.functions["main"].symbol, "missing": "missing" if checked else "NULL",
    }  # fmt: skip
    lines = [f"    .{field} = {value}," for field, value in fields.items()]
    return "\n".join([f"const meta_program_code {name}_code = {{", *lines, "};"])


def _header(name: str) -> str:
    guard = f"{name.upper()}_H_"
    return f"""/* The program {name}, to be opened with meta_program_open(&program, &{name}_code, NULL). */
#ifndef {guard}
#define {guard}

#include "meta_program.h"

#ifdef __cplusplus
extern "C" {{
#endif
extern const meta_program_code {name}_code;
#ifdef __cplusplus
}}
#endif
#endif
"""
