"""When the modules of the dialects' families are imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

_BEFORE_THE_FIRST_CALL = """
import numpy as np
import meta

def sevens(*args):
    return np.full(args[0].shape, 7.0, "float32")

x = meta.ones((2, 3))
reference = meta.dialect("reference")
{change}
explanation = meta.explain("tanh", x)
names = [c.implementation.name for c in explanation.candidates if c.implementation.dialect.name in ("tvm", "reference")]
print(f"{meta.tanh(x).tolist()[0][0]:.5f}", explanation.chosen, *names)
"""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ('reference.implement("tanh", sevens, override=True, plevel=30)', "7.00000 reference reference.tanh tvm.tanh"),
        ('reference.set_plevel(30, "tanh")', "0.76159 reference reference.tanh tvm.tanh"),
        ('reference.remove("tanh")', "0.76159 tvm tvm.tanh"),
        ('meta.dialect("tvm").remove("tanh")', "0.76159 reference reference.tanh"),
    ],
)
def test_changes_before_the_first_call(change: str, expected: str) -> None:
    """The implementations of a family are imported before one of them changes: a replaced one made every later call of
    the family fail."""
    code = _BEFORE_THE_FIRST_CALL.replace("{change}", change)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_the_reference_is_imported_only_where_it_is_needed() -> None:
    code = """
import sys
import meta
y = meta.vm.compile(lambda x: meta.softmax(meta.tanh(x)))(meta.softmax(meta.ones((2, 3))))
assert not [name for name in sys.modules if name.startswith("meta.op.dialect.reference.")]
with meta.with_dialect("reference"):
    meta.softmax(y)
assert [c.implementation.dialect.name for c in meta.explain("tanh", y).candidates][-1] == "reference"
assert "meta.op.dialect.reference.unary" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
