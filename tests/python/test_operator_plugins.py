"""Operators of installed packages: entry points of the group meta.operators, imported at the first unknown name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_MODULE = """
import meta
from meta.schema import Arg, Schema, Tensor

for name in ("installed_double", "installed_package::double"):
    meta.define(name, Schema("double", Arg("x", Tensor)), reference=lambda x: x * 2)(lambda x: x)
"""
_KIND = 'Tensor[(1,), "float32"]'
_TEXT = f"def main(%x: {_KIND}) -> ({_KIND},) {{\n  %y: {_KIND} = installed_package::double(%x)\n  (%y,)\n}}"
USES = {
    "meta": "meta.installed_double(meta.ones((1,))).tolist() == [2.0]",
    "ops": "meta.ops.installed_package.double(meta.ones((1,))).tolist() == [2.0]",
    "registry": "meta.op.registry.get('installed_package::double')",
    "text": f"'installed_package::double' in str(meta.ir.parser.parse({_TEXT!r}))",
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with an installed package that defines operators, and one whose module raises."""
    for name, module in (("working", _MODULE), ("broken", "1 / 0")):
        (tmp_path / f"{name}_operators.py").write_text(module)
        metadata = tmp_path / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[meta.operators]\n{name} = {name}_operators\n")
    return tmp_path


@pytest.mark.parametrize("use", USES)
def test_the_first_unknown_name_imports_the_plugins(site: Path, use: str) -> None:
    script = f"""
import sys
sys.path.insert(0, {str(site)!r})
import meta
assert meta.softmax and meta.ops.softmax
assert "working_operators" not in sys.modules
assert {USES[use]}
assert meta.relu(meta.ones((1,))).tolist() == [1.0]
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("PluginWarning: [plugins] 'broken' (broken_operators) of broken 1.0") == 1
