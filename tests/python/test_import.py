"""`import meta` loads next to nothing, and suffices for everything."""

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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", PATHS)
def test_one_import_is_enough(path: str) -> None:
    python(f"import meta; {path}")


def test_every_name_that_is_listed_is_there() -> None:
    python("import meta; [getattr(meta, name) for name in dir(meta)]")


def test_neither_torch_nor_tvm_is_loaded() -> None:
    python("import sys, meta; assert not {'torch', 'tvm', 'tvm_ffi', 'numpy'} & set(sys.modules)")


def test_unknown_submodules() -> None:
    with pytest.raises(AttributeError, match=r"module 'meta\.ir' has no attribute 'lexar'"):
        meta.ir.lexar  # noqa: B018


def test_no_text_and_no_names() -> None:
    with pytest.raises(ArgumentError, match="the program is a NoneType; expected a string"):
        parse(None)
    with pytest.raises(ArgumentError, match="expected a name, or a list of names"):
        meta.with_dialect(None)
