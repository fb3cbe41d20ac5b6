"""meta.explain: all candidates in order, each with its reason."""

from __future__ import annotations

import pytest

import meta
from meta.errors import ArgumentError, RegistryError, TypeInferenceError
from meta.ir.type import tensor_type
from tests.python.recorded import array


def test_lists_the_chosen_dialect_and_the_others():
    found = meta.explain("softmax", array(2, 3), axis=0)
    assert found.chosen == "tvm"
    text = str(found)
    assert text.split("\n")[0] == "softmax: tvm"
    assert "tvm (plevel 10): accepts" in text
    assert [c.implementation.dialect.name for c in found.candidates] == ["tvm", "reference"]
    assert "reference (plevel 1): accepts" in text


def test_accepts_types_instead_of_arrays():
    assert meta.explain("softmax", tensor_type((2, 3))).chosen == "tvm"
    assert meta.explain("concatenate", [tensor_type((2, 3)), array(4, 3)], 0).chosen == "tvm"
    assert meta.explain("concatenate", (tensor_type((2, 3)), array(4, 3)), 0).chosen == "tvm"


def test_reports_preferences_as_reasons():
    with meta.with_dialect("reference"):
        found = meta.explain("softmax", array(2, 3))
    assert found.chosen == "reference"
    assert "not among with_dialect(['reference'])" in str(found)


def test_reports_devices_without_an_implementation():
    found = meta.explain("softmax", tensor_type((2, 3), "float32", "cuda"))
    assert "reference (plevel 1): not on cuda" in str(found)


def test_operators_without_a_kernel_have_no_candidates():
    assert meta.explain("shape", array(2, 3)).candidates == ()
    assert meta.explain("reshape", array(2, 3), (6,)).candidates == ()
    assert str(meta.explain("shape", array(2, 3))) == "shape: needs no kernel"


def test_raises_the_errors_of_the_call():
    with pytest.raises(RegistryError, match="did you mean 'softmax'"):
        meta.explain("sofmax", array(2))
    with pytest.raises(ArgumentError, match="argument 'x' is missing"):
        meta.explain("softmax")
    with pytest.raises(TypeInferenceError, match="axis 5 is out of range"):
        meta.explain("softmax", array(2), 5)
