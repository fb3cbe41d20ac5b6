"""`python -m meta op new NAME --package DIR`: an installable package with a blank operator, to be edited.

The operator computes x * x in every part. Its test passes as it is written."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Final

from meta.cli.text import table
from meta.errors import ArgumentError, RegistryError
from meta.inspect.sources import location
from meta.op.registry import names as operator_names

USAGE: Final = "python -m meta op new NAME --package DIR"

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

_DEFINITION = '''"""The operators of {module}."""

import meta
from {module} import compute, reference
from meta.op import rules
from meta.schema import Arg, Schema, Tensor

__all__ = ["{name}"]


@meta.define(
    "{module}::{name}",
    Schema("{name}", Arg("x", Tensor, doc="Values of any shape, floating.")),
    gradient={{"x": "2 * dy * x"}},
    tvm=compute.{name},
    reference=reference.{name},
    pattern="elemwise",
)
def {name}(x):
    """x * x, element by element."""
    rules.require_float("x", x)  # this function gets types; it returns the type of the result
    return x
'''

_COMPUTE = '''"""The compute of {name} in TVM's tensor expressions, for CPUs and GPUs."""


def {name}(x):
    from tvm import te  # at the first call, because it takes seconds

    return te.compute(x.shape, lambda *index: x(*index) * x(*index), "{name}")
'''

_REFERENCE = '''"""{name} in NumPy, which the checks compare with."""


def {name}(x):
    return x * x
'''

_TEST = '''"""{name} passes the generic checks: types, dialects, gradients of both orders, programs."""

import {module}
from meta.testing import T, opcheck


def test_{name}() -> None:
    report = opcheck({module}.{name}, (T(3, 4, low=-1.0, high=1.0),))
    assert "dialects" not in {{finding.check for finding in report.skipped}}
'''

_FILES: Final = (
    ("src/{module}/__init__.py", _DEFINITION, "@meta.define", "schema, gradient, facts and type function"),
    ("src/{module}/compute.py", _COMPUTE, "te.compute", "the TE compute"),
    ("src/{module}/reference.py", _REFERENCE, "return", "the same in NumPy"),
    ("tests/test_{name}.py", _TEST, "opcheck(", "arguments that suit the operator"),
    ("pyproject.toml", _PROJECT, "", ""),
)
"""Path, content, a text of the line to edit, and what to edit there. Sources are in a folder of their own: Python
prefers an installed module to the project's folder of the same name."""


def run(names: Sequence[str], package: str | None) -> int:
    """Write the package and print the lines to edit. Raises ArgumentError without a name and a folder, RegistryError
    for a name that the operator or the package cannot have; nothing is written then."""
    if len(names) != 1 or not package:
        problem = f"{len(names)} names" + ("" if package else " and no --package")
        raise ArgumentError("op new", f"got {problem}", USAGE)
    (name,), folder = names, Path(package)
    module = _checked_module(name, folder)
    steps: list[tuple[str, str]] = []
    for path, template, marked, what in _FILES:
        file = folder / path.format(name=name, module=module)
        text = template.format(name=name, module=module, distribution=module.replace("_", "-"))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        if what:
            line = next(i for i, line in enumerate(text.splitlines(), 1) if marked in line)
            steps.append((f"  {location(file, line)}", what))
    print(f"{name} computes x * x. Edit:")
    print(table(("", ""), steps).lstrip("\n"))
    print("\n  ".join(["Then:", f"pip install -e {folder}", f"python -m pytest {folder}"]))
    return 0


def _checked_module(name: str, folder: Path) -> str:
    """The module of the package, which has the name of its folder."""
    if not name.isidentifier() or iskeyword(name) or name.startswith("_"):
        raise RegistryError("op new", f"an operator cannot be called {name!r}", "a name as Python's, such as 'my_relu'")
    if folder.exists():
        raise RegistryError("op new", f"{folder} exists already", "a new folder")
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
