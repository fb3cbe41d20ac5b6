"""A package with one operator, modelled on an operator of meta."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from meta._generated.formulas import FORMULAS
from meta.backend.tvm.compute import TEImplementation
from meta.errors import MetaError, NotSupportedError, RegistryError
from meta.inspect.sources import PACKAGE, location
from meta.op.declare import _standard
from meta.op.dispatch import implementations
from meta.op.grad.entry import SETTINGS
from meta.op.grad.formula import find_function
from meta.op.registry import Op, get, names
from meta.schema._dsl import Arg
from meta.template.repository import EditStep, check_name
from meta.template.sample_arguments import arguments
from meta.template.slices import Registered, function_text, registered, support

_PROJECT = """[build-system]
requires = ["setuptools>=77.0.3"]
build-backend = "setuptools.build_meta"

[project]
name = "{distribution}"
version = "0.1.0"
requires-python = ">=3.10"
dependencies = ["meta-tvm"]

[project.optional-dependencies]
test = ["pytest>=8.3"]

[project.entry-points."meta.operators"]
{module} = "{module}"
"""
_TEST = '''"""{name} passes the generic checks: types, dialects, gradients of both orders, programs."""

import {module}
from meta.testing import T, opcheck


def test_{name}() -> None:
    report = opcheck({module}.{name}, ({tensors},))
    assert "dialects" not in {{finding.check for finding in report.skipped}}
'''


def write_package(folder: Path, name: str, like: str) -> list[EditStep]:
    """Write an installable package into `folder`, named like its module: a definition of operator `module::name` with
    the schema, type function, gradient, TVM compute and NumPy implementation of operator `like`, and a test that
    passes. Returns the lines to edit.

    Raises RegistryError for an invalid name or a folder that exists, NotSupportedError where a part of `like` cannot be
    copied out of its file; nothing is written then."""
    check_name(name)
    module = folder.resolve().name.replace("-", "_")
    if folder.exists():
        raise RegistryError("op new", f"{folder} exists already", "a new folder")
    if not module.isidentifier():
        problem = f"{folder.name!r} is not a name that a module can have"
    elif module in names():
        problem = f"{module!r} is the name of an operator, which no namespace can have"
    else:
        problem = f"{module!r} is installed" if find_spec(module) is not None else ""
    if problem:
        raise RegistryError("op new", problem, "the name of a new module", "choose another folder")
    op = get(like)
    _check_supported(op)
    gradient_imports, gradient_definitions, entry = _gradient(op)
    # A folder of sources beside the tests: Python prefers an installed module to the project's folder of the same name.
    sources = f"src/{module}"
    files = {
        f"{sources}/__init__.py": _definition(op, name, module, entry),
        f"{sources}/compute.py": _compute(op, name),
        f"{sources}/reference.py": _reference(op, name),
        f"tests/test_{name}.py": _test(op, name, module),
        "pyproject.toml": _PROJECT.format(module=module, distribution=module.replace("_", "-")),
    }
    if gradient_definitions:
        files[f"{sources}/gradient.py"] = _module(f"Gradient of {name}.", gradient_imports, gradient_definitions)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    notes = {
        "__init__.py": "schema, type function, gradient and facts", "compute.py": "the TE compute",
        "reference.py": "the same in NumPy", "gradient.py": "the functions of the gradient",
        f"test_{name}.py": "arguments that suit the operator",
    }  # fmt: skip
    return [EditStep(location(folder / p, 1), notes[Path(p).name]) for p in files if Path(p).name in notes]


def _check_supported(op: Op) -> None:
    """Raise NotSupportedError for an operator with facts that meta.define cannot state."""
    facts = ("inplace", "view", "resolve", "recorded_as")
    special = [fact for fact in facts if getattr(op, fact)]
    payload = next((i.payload for i in implementations(op) if i.dialect.name == "tvm"), None)
    if isinstance(payload, TEImplementation):
        options = [f for f in fields(TEImplementation) if f.compare and f.name not in ("compute", "source")]
        special += [f.name for f in options if getattr(payload, f.name) != f.default]
    if special:
        raise _unsupported(op, f"it has {', '.join(special)}")


def _unsupported(op: Op, reason: str) -> NotSupportedError:
    return NotSupportedError(
        "op new", f"no package can be modelled on {op.name}: {reason}", remedy="choose another --like"
    )


def _source(op: Op, folder: str, *by: str) -> tuple[str, Registered]:
    """The source of a file of the operator's family, and what one of the functions `by` registers in it."""
    path = PACKAGE / "op" / folder / f"{op.family}.py"
    source = path.read_text(encoding="utf-8")
    row = registered(source, op.name)
    if row is None or not row.by.startswith(by):
        raise _unsupported(op, f"{path.relative_to(PACKAGE.parent)} registers it in a loop or by a helper")
    return source, row


def _module(doc: str, imports: Sequence[str], definitions: Sequence[str]) -> str:
    """The text of a module."""
    modules: dict[str, dict[str, None]] = {}
    for line in imports:
        head, _, names = line.partition(" import ")
        modules.setdefault(head, {}).update(dict.fromkeys(names.split(", ")))
    listed = "\n".join(
        f"{head} import {', '.join(names)}" if "" not in names else head for head, names in modules.items()
    )
    text = "\n\n\n".join(definitions)
    return f'"""{doc}"""\n\nfrom __future__ import annotations\n\n{listed}\n\n\n{text}\n'


def _compute(op: Op, name: str) -> str:
    source, row = _source(op, "dialect/tvm", "elementwise", "compute")
    imports, definitions = support(source, [row.node])
    if isinstance(row.node, ast.FunctionDef):
        return _module(f"TE compute of {name}.", imports, [*definitions, function_text(row.node, name)])
    are_tensors = [a.is_tensor for a in op.schema.args]
    text = f'{name} = per_element("{name}", {ast.unparse(row.node)}, {are_tensors})'
    imports = [*imports, "from meta.backend.tvm.te.elementwise import per_element"]
    return _module(f"TE compute of {name}, of each element.", imports, [*definitions, text])


def _reference(op: Op, name: str) -> str:
    source, row = _source(op, "dialect/reference", "elementwise", "plain", "implement")
    imports, definitions = support(source, [row.node])
    if isinstance(row.node, ast.FunctionDef) or row.by != "elementwise":
        node = row.node
        text = function_text(node, name) if isinstance(node, ast.FunctionDef) else f"{name} = {ast.unparse(node)}"
        return _module(f"{name} in NumPy.", imports, [*definitions, text])
    tensors = ", ".join(a.name for a in op.schema.args if a.is_tensor)
    rest = "".join(f", {a.name}" for a in op.schema.args if not a.is_tensor)
    text = f"_element = {ast.unparse(row.node)}\n\n\ndef {name}({', '.join(op.schema.names)}):\n"
    text += f"    return _element(*promote({tensors}){rest})"
    imports = [*imports, "from meta.backend.reference.precision import promote"]
    return _module(f"{name} in NumPy.", imports, [*definitions, text])


def _gradient(op: Op) -> tuple[list[str], list[str], str]:
    """Imports and functions of the gradient, and the entry as Python text."""
    raw = FORMULAS[op.name]
    if not isinstance(raw, Mapping):
        return [], [], repr(raw)
    imports: list[str] = []
    definitions: dict[str, None] = {}
    parts: list[str] = []
    for key, formula in cast("Mapping[str, Any]", raw).items():
        value = repr(formula)
        if key not in SETTINGS and isinstance(formula, str) and _is_function(op, formula):
            function = find_function(op, formula)
            source = Path(inspect.getsourcefile(function) or "").read_text(encoding="utf-8")
            node = next(n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name == formula)
            used, defined = support(source, [node])
            imports += used
            definitions |= dict.fromkeys([*defined, function_text(node, formula)])
            value = f"gradient.{formula}"
        parts.append(f"{key!r}: {value}")
    return imports, list(definitions), "{" + ", ".join(parts) + "}"


def _is_function(op: Op, formula: str) -> bool:
    return formula.isidentifier() and formula not in ("dy", "dz", "non_differentiable", *op.schema.names)


def _definition(op: Op, name: str, module: str, entry: str) -> str:
    source, row = _source(op, "declare", "declare", "standard_")
    if isinstance(row.node, ast.FunctionDef):
        imports, definitions = support(source, [row.node])
        function = function_text(row.node, name)
    else:
        definitions = []
        imports = [
            "from meta.ir.type import TensorType",
            "from meta.op import rules",
            "from meta.dtype import is_float",
        ]
        function = _standard_function(op, row.call, name)
    facts = {"pattern": op.pattern, "amp": op.amp, "amp_args": op.amp_args, "outputs": op.outputs}
    rows = "".join(f"    {fact}={value!r},\n" for fact, value in facts.items() if value)
    args = "".join(f"    {_argument(op, arg)},\n" for arg in op.schema.args)
    schema = f'SCHEMA = Schema(\n    "{name}",\n{args})'
    definition = (
        f'@meta.define(\n    "{module}::{name}",\n    SCHEMA,\n    gradient={entry},\n    tvm=compute.{name},\n'
        f"    reference=reference.{name},\n{rows})\n{function}"
    )
    parts = ["compute", "reference", *(["gradient"] if "gradient." in entry else [])]
    types = "from meta.schema import Arg, Bool, Choice, Device, DType, Float, Int, IntTuple, Number, "
    heads = [
        "import meta",
        f"from {module} import {', '.join(parts)}",
        types + "NumberOrSize, Optional, Scalar, Schema, Str, Tensor, TensorList",
        *imports,
    ]
    return _module(
        f"The operator {name}.",
        _only_used(heads, "".join([*definitions, schema, definition])),
        [*definitions, schema, definition],
    )


def _only_used(imports: Sequence[str], text: str) -> list[str]:
    """The imports without the names that the text does not contain."""
    out: list[str] = []
    for line in imports:
        head, word, names = line.partition(" import ")
        used = [n for n in names.split(", ") if re.search(rf"\b{n.rpartition(' ')[2]}\b", text)]
        if used or not word:
            out.append(f"{head}{word}{', '.join(used)}" if word else line)
    return out


def _argument(op: Op, arg: Arg) -> str:
    """The source of an argument of a schema."""
    kind = arg.type.name.rstrip("?")
    if kind == "Choice":
        kind = f"Choice({arg.type.annotation.removesuffix(' | None').removeprefix('Literal[').removesuffix(']')})"
    elif kind in ("IntPairs", "Sections"):
        raise _unsupported(op, f"its argument '{arg.name}' has the type {kind}")
    kind = f"Optional({kind})" if arg.type.optional else kind
    default = "" if arg.required else f", {arg.default!r}"
    return f'Arg("{arg.name}", {kind}{default}, doc={arg.doc!r})'


_CHECKS = {
    "any": "",
    "number": "require_number",
    "discrete": "require_discrete",
    "int": "require_int",
    "float": "require_float",
}
_RESULTS = {
    "same": "return out",
    "float": 'return out if is_float(out.dtype) else out.with_dtype("float32")',
    "sum": 'return out if is_float(out.dtype) else out.with_dtype("int64")',
    "bool": 'return out.with_dtype("bool")',
}
_TYPES = {
    "standard_unary": ["out = x"],
    "standard_binary": [
        "one = isinstance(x1, TensorType) or isinstance(x2, TensorType)",
        'rules.require(one, "both operands are numbers", "at least one tensor")',
        "out = rules.broadcast_type(x1, x2)",
    ],
    "standard_reduce": [
        "axes = (axis,) if isinstance(axis, int) else axis",
        "out = x.with_shape(rules.reduced_shape(x.shape, axes, keepdims))",
    ],
}


def _standard_function(op: Op, call: ast.Call, name: str) -> str:
    """The type function that a `standard_...` declaration makes, written out."""
    helper = call.func.id if isinstance(call.func, ast.Name) else ""
    if helper not in _TYPES:
        raise _unsupported(op, f"it is declared by {helper}")
    signature = inspect.signature(getattr(_standard, helper))
    stated = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg in ("result", "accepts", "empty")}
    facts = {key: p.default for key, p in signature.parameters.items()} | stated
    check = _CHECKS[facts["accepts"]]
    lines = [*_TYPES[helper], _RESULTS[facts["result"]]]
    if not facts.get("empty", True):
        lines.insert(1, "rules.require_elements(x.shape, axes)")
    if check:
        lines.insert(-1, f'rules.{check}("{op.schema.names[0]}", {"x" if helper == "standard_reduce" else "out"})')
    doc = " ".join(op.doc.split()).replace("\\", "\\\\")
    return "\n    ".join([f"def {name}({', '.join(op.schema.names)}):", f'"""{doc}"""', *lines])


def _test(op: Op, name: str, module: str) -> str:
    try:
        drawn = arguments(op)
    except MetaError as error:
        raise _unsupported(op, error.summary) from error
    tensors = ", ".join(f"T(*{shape}, low={drawn.low}, high={drawn.high})" for shape in drawn.shapes.values())
    return _TEST.format(name=name, module=module, tensors=tensors)
