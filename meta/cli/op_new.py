"""`python -m meta op new NAME [--inputs 2] [--package DIR]`: a blank operator in a new or an existing package.

The operator multiplies its inputs, or computes x * x, in every part. Its test passes as it is written."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Final, NamedTuple

from meta.cli.text import table
from meta.errors import RegistryError
from meta.inspect.sources import location
from meta.op.registry import SEPARATOR, check_name
from meta.op.registry import names as operator_names

_ENTRY_POINT: Final = """
[project.entry-points."meta.operators"]
{module} = "{module}"
"""

_IMPORT: Final = "from {module}.{name} import {name} as {name}\n"

_PROJECT: Final = """[build-system]
requires = ["setuptools>=77.0.3"]
build-backend = "setuptools.build_meta"

[project]
name = "{distribution}"
version = "0.1.0"
requires-python = ">=3.10"
dependencies = ["meta-tvm"]

[project.optional-dependencies]
test = ["pytest>=8.3"]
"""

_OPERATOR: Final = '''"""The operator {name}: {formula}."""

import meta
from meta.op import rules
from meta.schema import Arg, Schema, Tensor


def compute({inputs}):
    """The tensor expression, for CPUs and GPUs."""
    from tvm import te  # at the first call, because it takes seconds

    return te.compute({first}.shape, lambda *index: {element}, "{name}")


def reference({inputs}):
    """The same in NumPy, which the checks compare with."""
    return {formula}


@meta.define(
    "{module}::{name}",
    Schema(
        "{name}",
{arguments}    ),
    gradient={{{gradient}}},
    tvm=compute,
    reference=reference,
    pattern="elemwise",
)
def {name}({inputs}):
    """{formula}, element by element."""
    rules.require_float("{first}", {first})  # this function gets types; it returns the type of the result
{checks}    return {first}
'''

_TEST: Final = '''"""{name} passes the generic checks: types, dialects, gradients of both orders, programs."""

import {module}
from meta.testing import T, opcheck

SAMPLES = [
    ({matrices}),
    ({vectors}),
]


def test_{name}() -> None:
    report = opcheck({module}.{name}, *SAMPLES)
    assert "dialects" not in {{finding.check for finding in report.skipped}}
'''


_STEPS: Final = (
    ("return te.compute(", "the TE compute"),
    ("def reference(", "the same in NumPy"),
    ('Arg("', "arguments and their documentation"),
    ("gradient=", "a formula for the gradient of each argument"),
    ("rules.require", "checks of types, and the type of the result"),
)
"""Lines of the definition, and what to edit there."""


class _Package(NamedTuple):
    """project: the folder with pyproject.toml.  sources: the folder of the module.  In a new package sources are in a
    folder `src`: Python prefers an installed module to the project's folder of the same name."""

    project: Path
    sources: Path


def run(name: str, inputs: int, folder: str | None) -> int:
    """Write the operator and print the lines to edit.

    folder: a project, the folder of its module, or a new folder; without it the working directory if it is a project,
        else a new folder `NAME_ops`. Raises RegistryError for a name that the operator or the package cannot have, for
        files that exist already, and for a folder that is not a package; nothing is written then."""
    check_name(name)
    if name.startswith("_") or SEPARATOR in name:
        raise RegistryError("op new", f"an operator cannot be called {name!r}", "a name as Python's, such as 'my_relu'")
    if inputs < 1:
        raise RegistryError("op new", f"--inputs is {inputs}", "at least 1")
    package = _package(Path(folder or ("." if Path("pyproject.toml").exists() else f"{name}_ops")))
    parts = _parts(name, package.sources.name, inputs)
    definition, test = package.sources / f"{name}.py", package.project / f"tests/test_{name}.py"
    for file in (definition, test):
        if file.exists():
            raise RegistryError("op new", f"{file} exists already", "a new operator", "choose another name")
    _append(definition, _OPERATOR, parts)
    _append(test, _TEST, parts)
    _append(package.sources / "__init__.py", _IMPORT, parts, '"""The operators of {module}."""\n\n')
    _append(package.project / "pyproject.toml", _ENTRY_POINT, parts, _PROJECT, unless='entry-points."meta.operators"]')
    steps = [(f"  {_marked(definition, mark)}", what) for mark, what in _STEPS]
    steps.append((f"  {_marked(test, 'SAMPLES')}", "arguments that suit the operator"))
    print(f"{name} computes {parts['formula']}. Edit:")
    print(table(("", ""), steps).lstrip("\n"))
    print("\n  ".join(["Then:", f"pip install -e {package.project}", f"python -m pytest {test}"]))
    return 0


def _package(folder: Path) -> _Package:
    """The package in a folder, or a new one. Raises RegistryError for other folders and for names of new modules."""
    if not folder.exists():
        return _Package(folder, folder / "src" / _new_module(folder))
    is_module = (folder / "__init__.py").exists()
    project = next((f for f in (folder, *folder.resolve().parents) if (f / "pyproject.toml").exists()), None)
    inits = [f for pattern in ("src/*/__init__.py", "*/__init__.py") for f in sorted(folder.glob(pattern))]
    modules = [folder] if is_module else [f.parent for f in inits if f.parent.name not in ("tests", "test")]
    if project is None or (project != folder and not is_module):
        raise RegistryError("op new", f"{folder} exists and has no pyproject.toml", "a new folder, or a project")
    if len(modules) != 1:
        names = ", ".join(map(str, modules)) or "none"
        problem = f"{folder} has {len(modules)} folders with __init__.py: {names}"
        raise RegistryError("op new", problem, "one", "name the folder of the module with --package")
    if modules[0].resolve().name in operator_names():
        problem = f"{modules[0].resolve().name!r} is the name of an operator, which no namespace can have"
        raise RegistryError("op new", problem, "a package with another name")
    return _Package(project, modules[0].resolve() if is_module else modules[0])


def _new_module(folder: Path) -> str:
    """The module of a new package, which has the name of its folder."""
    module = folder.resolve().name.replace("-", "_")
    if not module.isidentifier() or iskeyword(module):
        problem = f"{folder.name!r} is not a name that a module can have"
    elif module in operator_names():
        problem = f"{module!r} is the name of an operator, which no namespace can have"
    elif find_spec(module) is not None:
        problem = f"{module!r} is installed"
    else:
        return module
    raise RegistryError("op new", problem, "the name of a new module", "choose another folder")


def _parts(name: str, module: str, inputs: int) -> dict[str, str]:
    """What the templates need."""
    names = [f"x{i}" for i in range(1, inputs + 1)] if inputs > 1 else ["x"]
    factors, same = (names if inputs > 1 else ["x", "x"]), ", ".join(f"{x}={x}" for x in names)
    products = {x: ["dy", *(other for other in names if other != x)] for x in names}
    gradient = {x: " * ".join(product) for x, product in products.items()} if inputs > 1 else {"x": "2 * dy * x"}
    return {
        "name": name, "module": module, "distribution": module.replace("_", "-"), "inputs": ", ".join(names),
        "first": names[0], "formula": " * ".join(factors), "element": " * ".join(f"{x}(*index)" for x in factors),
        "arguments": "".join(f'        Arg("{x}", Tensor, doc="Values of any shape, floating."),\n' for x in names),
        "gradient": ", ".join(f'"{x}": "{text}"' for x, text in gradient.items()),
        "checks": "".join(f"    rules.require_same_{what}({same})\n" for what in ("dtype", "shape") if inputs > 1),
        "matrices": ", ".join(["T(3, 4)"] * inputs) + "," * (inputs == 1),
        "vectors": ", ".join(["T(5)"] * inputs) + "," * (inputs == 1),
    }  # fmt: skip


def _append(file: Path, template: str, parts: Mapping[str, str], head: str = "", unless: str = "\0") -> None:
    """Append a part to a file that may be new, whose head is then written, unless it has the text `unless`."""
    text = file.read_text(encoding="utf-8") if file.exists() else head.format(**parts)
    if unless in text:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    separator = "" if not text or text.endswith("\n") else "\n"
    file.write_text(f"{text}{separator}{template.format(**parts)}", encoding="utf-8")


def _marked(file: Path, mark: str) -> str:
    """`file:line` of the first line with a text."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return location(file, next(i for i, line in enumerate(lines, 1) if mark in line))
