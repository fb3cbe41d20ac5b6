"""`import meta` loads neither torch nor TVM and gives access to every public name."""

import subprocess
import sys

import pytest

import meta
from meta.errors import ArgumentError
from meta.ir.parser import parse

PATHS = (
    "meta.frontend.relay.from_relay", "meta.frontend.relay.examine", "meta.interpreter.run.run", "meta.ir.parser.parse",
    "meta.op.registry.get", "meta.op.dispatch.with_dialect", "meta.op.dialect.cudnn.settings.allow_tf32",
    "meta.optim.sgd.with_sgd", "meta.passes.place", "meta.testing.check", "meta.vm.compile", "meta.autograd.grad",
    "meta.nn.Linear", "meta.model.trace", "meta.errors.MetaError",
)  # fmt: skip


def python(code: str) -> str:
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


@pytest.mark.parametrize("path", PATHS)
def test_reaches_submodules_with_one_import(path: str) -> None:
    python(f"import meta; {path}")


def test_imports_every_listed_name() -> None:
    python("import meta; [getattr(meta, name) for name in dir(meta)]")


def test_loads_neither_torch_nor_tvm() -> None:
    python("import sys, meta; assert not {'torch', 'tvm', 'tvm_ffi', 'numpy'} & set(sys.modules)")


def test_loads_families_of_computes_without_tvm() -> None:
    """A program whose kernels are on disk loads families, of which each would import the compiler by one name."""
    python(
        "import importlib, pkgutil, sys, meta.op.dialect.tvm as families;"
        "[importlib.import_module(f'{families.__name__}.{m.name}') for m in pkgutil.iter_modules(families.__path__)];"
        "assert not {'torch', 'tvm'} & set(sys.modules)"
    )


def test_rejects_unknown_submodules() -> None:
    with pytest.raises(AttributeError, match=r"module 'meta\.ir' has no attribute 'lexar'"):
        meta.ir.lexar  # noqa: B018


def test_rejects_none_for_text_and_names() -> None:
    with pytest.raises(ArgumentError, match="the program is a NoneType; expected a string"):
        parse(None)
    with pytest.raises(ArgumentError, match="expected a name, or a list of names"):
        meta.with_dialect(None)
