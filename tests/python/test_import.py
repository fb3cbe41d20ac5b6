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


def test_an_operator_imports_its_family_alone() -> None:
    python(
        "import sys, meta; meta.softmax, meta.ops.log_softmax\n"
        "from meta.op.grad.rule import gradient_rule\n"
        "assert gradient_rule('softmax') and meta.op.registry.get('softmax').family == 'nn'\n"
        "for package in 'meta._generated.operators', 'meta._generated.gradients', 'meta.op.declare':\n"
        "    families = {name for name in sys.modules if name.startswith(package + '.')}\n"
        "    assert families - {'meta.op.declare._standard'} == {package + '.nn'}, families"
    )


def test_names_and_iteration_include_families_that_are_not_imported() -> None:
    python(
        "import meta, meta.op.registry as registry\n"
        "assert {'softmax', 'conv2d', 'amax'} <= registry.names() & set(dir(meta)) & set(dir(meta.ops))\n"
        "assert registry.get('amax').name == 'max'\n"
        "assert {'softmax', 'conv2d'} <= {op.name for op in registry.all_ops()} <= registry.names()"
    )


def test_threads_import_families_at_once() -> None:
    """Each thread imports another family first, while the others import what the families share."""
    python(
        "import sys, threading, meta\n"
        "from meta._generated.table import FAMILIES\n"
        "from meta.op.grad.rule import gradient_rule\n"
        "first = {family: name for name, family in FAMILIES.items()}\n"
        "start, done = threading.Barrier(len(first)), []\n"
        "def use(name):\n"
        "    start.wait()\n"
        "    gradient_rule(name)\n"
        "    done.append(getattr(meta, name).__name__)\n"
        "sys.setswitchinterval(1e-5)\n"
        "threads = [threading.Thread(target=use, args=(name,), daemon=True) for name in first.values()]\n"
        "[thread.start() for thread in threads]; [thread.join(100) for thread in threads]\n"
        "assert sorted(done) == sorted(first.values()), done"
    )


def test_an_operator_of_a_user_cannot_take_a_name_of_a_family_that_is_not_imported() -> None:
    python(
        "import meta\n"
        "from meta.op import registry\n"
        "softmax = registry.get('softmax')\n"
        "try:\n"
        "    registry.add(registry.Op('conv2d', registry.USER, softmax.schema, softmax.declare, ''))\n"
        "except meta.errors.RegistryError as error:\n"
        "    assert 'conv2d' in str(error)\n"
        "else:\n"
        "    raise AssertionError"
    )


def test_rejects_unknown_submodules() -> None:
    with pytest.raises(AttributeError, match=r"module 'meta\.ir' has no attribute 'lexar'"):
        meta.ir.lexar  # noqa: B018


def test_rejects_none_for_text_and_names() -> None:
    with pytest.raises(ArgumentError, match="the program is a NoneType; expected a string"):
        parse(None)
    with pytest.raises(ArgumentError, match="expected a name, or a list of names"):
        meta.with_dialect(None)
