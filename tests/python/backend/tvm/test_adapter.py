"""The contract with TVM: every name of TVM that the code uses exists in the supported version."""

from __future__ import annotations

import ast
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import runtime
from meta.backend.tvm.intrinsic import register_operators

_ROOT = Path(__file__).resolve().parents[4]


def test_every_tvm_name_exists() -> None:
    broken: list[str] = []
    for name, where in {**tvm.NAMES, **tvm.FUNCTIONS}.items():
        try:
            tvm.resolve(name)
        except (AttributeError, ImportError) as error:
            broken.append(f"{name} ({where}): {error}")
    assert not broken, f"TVM {tvm.version} lacks what meta uses:\n" + "\n".join(broken)


@pytest.fixture(autouse=True, scope="module")
def _loaded() -> None:
    tvm.load()


def test_every_used_attribute_of_a_tvm_module_exists() -> None:
    modules = {name for name, where in tvm.NAMES.items() if ":" not in where} | {"relax_transform", "transform"}
    broken: list[str] = []
    for folder in ("meta/backend", "meta/op/dialect/tvm", "meta/vm", "meta/frontend"):
        for path in sorted((_ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text("utf-8"))
            broken += [
                f"{path.relative_to(_ROOT)}: {chain}" for chain in _find_chains(tree, modules) if not _exists(chain)
            ]
    assert not broken, f"TVM {tvm.version} lacks what meta uses:\n" + "\n".join(broken)


def test_unwrapped_arguments() -> None:
    shape, dtype = tvm.Shape((2, 3)), tvm.dtype("float16")
    objects = tvm.unwrapped(shape), tvm.unwrapped(dtype)
    assert type(objects[0]) is not type(shape)
    assert type(objects[1]) is not type(dtype)
    out = tvm.alloc_tensor(*objects, tvm.device("cpu", 0), None)
    assert (tuple(out.shape), str(out.dtype)) == ((2, 3), "float16")
    assert tvm.unwrapped(4) == 4


def _find_chains(tree: ast.AST, modules: set[str]) -> set[str]:
    """Dotted names that start with a TVM module imported from the adapter: `te.compute`, `topi.nn.dense`."""
    local: dict[str, str] = {}  # name in the file -> name in the adapter, "" for the adapter
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "meta.backend.tvm":
            local |= {alias.asname or alias.name: "" for alias in node.names if alias.name == "adapter"}
        if isinstance(node, ast.ImportFrom) and node.module == "meta.backend.tvm.adapter":
            local |= {alias.asname or alias.name: alias.name for alias in node.names if alias.name in modules}
    chains: set[str] = set()
    for node in ast.walk(tree):
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in local or not parts:
            continue
        full = [local[node.id], *parts] if local[node.id] else parts
        if full[0] in modules:
            chains.add(".".join(full))
    return chains


def _exists(chain: str) -> bool:
    value: Any = tvm
    for i, part in enumerate(chain.split(".")):
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
        if i and not isinstance(value, (type(ast), tvm.Lazy)):  # the contract covers attributes of modules only
            return True
    return True


def test_the_installed_version_is_supported() -> None:
    assert tvm.version.startswith(tvm.SUPPORTED)


def test_an_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        _ = tvm.no_such_name


def test_importing_the_adapter_loads_no_tvm() -> None:
    code = "import sys, meta.backend.tvm.adapter; assert not {'tvm', 'tvm_ffi', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=_ROOT)


def test_torch_is_hidden_from_the_importing_thread_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="the test checks that torch is found")
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(sys, "meta_path", [runtime._WithoutTorch(), *sys.meta_path])
    values: list[object] = []
    thread = threading.Thread(target=lambda: values.append(find_spec("torch")))
    thread.start()
    thread.join()
    assert len(values) == 1
    assert values[0] is not None
    with pytest.raises(ModuleNotFoundError, match="torch is hidden while TVM is imported"):
        find_spec("torch")


def test_rounding_takes_vectors() -> None:
    """Vectorised loops that call an operator without this attribute become scalar."""
    register_operators()
    assert tvm.Op.get("tirx.nearbyint").get_attr("TVectorizable")
