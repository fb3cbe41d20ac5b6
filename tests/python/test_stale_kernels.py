"""Operators from outside the package are compiled again when what they compute changes, and only then.

Processes that share a disk cache define the same operators; between the first two, everything that the computes depend
on changes, and nothing between the last two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).resolve().parents[2]

_OPERATORS = """
import functools, importlib, json, sys
from dataclasses import dataclass
import numpy as np
from tvm import topi
import meta
from meta.backend.tvm import library
from meta.op.dialect.tvm import compute, elementwise
from meta.op.registry import declare
from meta.schema import Arg, Schema, Tensor
from meta.vm.build import generate
import edited, helper
from settings import FACTOR, PACKAGE

GLOBAL = FACTOR

def closure(factor):
    return lambda x: topi.multiply(x, factor)

def reads_global(x):
    return topi.multiply(x, GLOBAL)

def default(x, factor=FACTOR):
    return topi.multiply(x, factor)

def by_keyword(x, *, factor):
    return topi.multiply(x, factor)

@dataclass
class Instance:
    factor: float
    def __call__(self, x):
        return topi.multiply(x, self.factor)

computes = {
    "closure": closure(FACTOR),
    "global": reads_global,
    "default": default,
    "partial": functools.partial(by_keyword, factor=FACTOR),
    "instance": Instance(FACTOR),
    "helper": lambda x: helper.scaled(x),
    "edited": edited.scaled,
    "package": importlib.import_module(PACKAGE).scaled,
}
schema = Schema("scaled", Arg("x", Tensor))
for name, function in computes.items():
    meta.define(f"user_{name}", schema, tvm=function, pattern="elemwise")(lambda x: x)
meta.define("user_elementwise", schema, pattern="elemwise")(lambda x: x)
elementwise({"user_elementwise": lambda x: x * FACTOR})
# A family that this package also has.
declare("user_family", schema=schema, family="nn", pattern="elemwise")(lambda x: x)
compute("user_family")(closure(FACTOR))

builds = []
for module, name in ((library, "compile_functions"), (generate, "build_module")):
    def counting(*args, original=getattr(module, name), **facts):
        builds.append(1)
        return original(*args, **facts)
    setattr(module, name, counting)

results = {}
x = meta.ones((2, 3))
for name in (*computes, "elementwise", "family"):
    from meta.eager.call import invoke, state
    from meta.op.registry import get
    operator = state(get(f"user_{name}"))
    eager = invoke(operator, x).numpy()
    program = meta.vm.compile(meta.trace(lambda x: invoke(operator, x)))(x).numpy()
    results[name] = [sorted(set(a.ravel().tolist())) for a in (eager, program)]
print(json.dumps({"results": results, "builds": len(builds)}))
"""

_NAMES = (
    *("closure", "global", "default", "partial", "instance", "helper", "edited", "package"),
    *("elementwise", "family"),
)


def _write(folder: Path, factor: float, package: str) -> None:
    """The modules that the operators import; those of the two packages have the same text, but for the helper."""
    scaled = "from tvm import topi\n\n\ndef scaled(x):\n    return topi.multiply(x, {})\n"
    (folder / "operators.py").write_text(_OPERATORS)
    (folder / "settings.py").write_text(f"FACTOR, PACKAGE = {factor}, {package!r}\n")
    (folder / "edited.py").write_text(scaled.format(factor))
    (folder / "helper.py").write_text(scaled.format(factor))
    (folder / package).mkdir(exist_ok=True)
    (folder / package / "__init__.py").write_text("from .factor import FACTOR\n" + scaled.format("FACTOR"))
    (folder / package / "factor.py").write_text(f"FACTOR = {factor}\n")


def _run(folder: Path) -> dict[str, Any]:
    environment = {
        **os.environ,
        "META_CACHE_DIR": str(folder / "cache"),
        "META_CACHE": "1",
        "PYTHONPATH": str(_ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, str(folder / "operators.py")]
    completed = subprocess.run(command, env=environment, cwd=_ROOT, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    return {**json.loads(completed.stdout), "entries": sorted(p.name for p in (folder / "cache").rglob("*.*"))}


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The results of three processes: the first one before the edits, the others after them."""
    folder = tmp_path_factory.mktemp("operators")
    _write(folder, 2.0, "one_package")
    first = _run(folder)
    _write(folder, 3.0, "two_packages")
    return [first, _run(folder), _run(folder)]


@pytest.mark.parametrize("name", _NAMES)
def test_an_edit_takes_effect_in_the_next_process(processes: list[dict[str, Any]], name: str) -> None:
    """Eagerly and in a program."""
    assert [p["results"][name] for p in processes] == [[[2.0]] * 2, [[3.0]] * 2, [[3.0]] * 2]


def test_unedited_operators_come_from_the_disk(processes: list[dict[str, Any]]) -> None:
    _, edited, unedited = processes
    assert edited["builds"] == 2 * len(_NAMES)
    assert unedited["builds"] == 0
    assert unedited["entries"] == edited["entries"]
