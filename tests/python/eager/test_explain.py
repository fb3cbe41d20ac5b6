"""meta.explain: all candidates in order, each with its reason."""

from __future__ import annotations

import pytest

import meta
from meta.errors import ArgumentError, RegistryError, TypeInferenceError
from meta.ir.type import tensor_type
from tests.python.recorded import array


def test_lists_the_chosen_dialect_and_the_others():
    explanation = meta.explain("softmax", array(2, 3), axis=0)
    assert explanation.chosen == "tvm"
    text = str(explanation)
    assert text.split("\n")[0] == "softmax: tvm"
    assert "tvm (plevel 10): accepts" in text
    assert [c.implementation.dialect.name for c in explanation.candidates] == ["tvm", "reference"]
    assert "reference (plevel 1): accepts" in text


def test_accepts_types_instead_of_arrays():
    assert meta.explain("softmax", tensor_type((2, 3))).chosen == "tvm"
    assert meta.explain("concatenate", [tensor_type((2, 3)), array(4, 3)], 0).chosen == "tvm"
    assert meta.explain("concatenate", (tensor_type((2, 3)), array(4, 3)), 0).chosen == "tvm"


def test_reports_preferences_as_reasons():
    with meta.with_dialect("reference"):
        explanation = meta.explain("softmax", array(2, 3))
    assert explanation.chosen == "reference"
    assert "not among with_dialect(['reference'])" in str(explanation)


def test_reports_devices_without_an_implementation():
    explanation = meta.explain("softmax", tensor_type((2, 3), "float32", "cuda"))
    assert "reference (plevel 1): not on cuda" in str(explanation)


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


def only_bfloat16(call):
    return None if call.out.dtype == "bfloat16" else f"{call.out.dtype}, not bfloat16"


def test_applies_autocast_as_the_call_does():
    with meta.register_dialect("halves", plevel=20) as halves:
        halves.implement("matmul", lambda *args, out: out.fill(7.0), accepts=only_bfloat16)
        x = array(2, 2)
        assert meta.explain("matmul", x, x).chosen == "tvm"
        with meta.amp.autocast("bfloat16"):
            explanation = meta.explain("matmul", x, x)
            assert meta.matmul(x, x).tolist() == [[7.0, 7.0]] * 2
            assert meta.explain("matmul", x.type, x.type).chosen == "halves"
            assert meta.explain("concatenate", [x, x], 0).notes == ()
        assert explanation.chosen == "halves"
        assert "\n  autocast casts operands to bfloat16\n" in str(explanation)


def test_applies_gradient_recording_as_the_call_does():
    with meta.register_dialect("mine", plevel=20) as mine:
        mine.implement("max_pool2d", lambda *args, out: out.fill(7.0))
        x = array(1, 1, 4, 4)
        assert meta.explain("max_pool2d", x, 2).chosen == "mine"
        x.requires_grad = True
        explanation = meta.explain("max_pool2d", x, 2)
        assert explanation.chosen == "tvm"
        assert str(explanation).startswith("max_pool2d: tvm\n  runs as max_pool2d_with_indices, which keeps")
        assert (meta.max_pool2d(x, 2).detach().numpy() != 7.0).all()
        with meta.no_grad():
            assert meta.explain("max_pool2d", x, 2).chosen == "mine"
            assert (meta.max_pool2d(x, 2).numpy() == 7.0).all()


def test_computes_sizes_that_depend_on_values():
    assert meta.explain("argwhere", meta.array([0.0, 2.0])).chosen == "tvm"
    text = str(meta.explain("argwhere", tensor_type((2,))))
    assert "argwhere: no dialect accepts this call" in text
    assert "the shape of the result depends on values" in text
