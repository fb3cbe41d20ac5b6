"""Errors: the four parts as fields, rendering, attribution, copies."""

import copy
import pickle

import pytest

import meta
from meta.errors import ArgumentError, GradientError, TypeInferenceError, attributed, combined


def test_parts_and_text():
    error = ArgumentError("softmax", "axis is 'a'", "an int", "pass axis=-1", location="net.py:3")
    assert (error.subject, error.problem, error.expected, error.remedy) == (
        "softmax",
        "axis is 'a'",
        "an int",
        "pass axis=-1",
    )
    assert error.summary == "[softmax] axis is 'a'; expected an int; pass axis=-1"
    assert str(error) == f"{error.summary} (at net.py:3)"


def test_omits_empty_parts():
    assert str(ArgumentError("", "no parts", location="")) == "no parts"
    assert str(ArgumentError("op", "a problem", remedy="a remedy", location="")) == "[op] a problem; a remedy"


def test_location_is_the_line_of_the_user():
    with pytest.raises(TypeInferenceError) as caught:
        meta.softmax(meta.ones((2,)), axis=4)
    assert caught.value.location.startswith(f"{__file__}:")
    assert str(caught.value).endswith(f"(at {caught.value.location})")


def test_shared_rules_name_the_operator():
    for name in ("softmax", "log_softmax"):
        with pytest.raises(TypeInferenceError) as caught:
            getattr(meta, name)(meta.ones((2, 3)), axis=4)
        assert caught.value.subject == name
        assert caught.value.problem == "axis 4 is out of range for rank 2"
        assert caught.value.expected == "-2 to 1"


def test_attribution_keeps_the_innermost_subject():
    with pytest.raises(ArgumentError, match=r"^\[inner\]"), attributed("outer"), attributed("inner"):
        raise ArgumentError("", "a problem")


def test_combined_lists_each_error_once():
    errors = [GradientError("f", "one", location=""), GradientError("g", "two", location="")]
    assert str(combined([*errors, GradientError("g", "two", location="")])) == "[f] one\n[g] two"


def test_copies_keep_every_part():
    error = ArgumentError("op", "a problem", "a number", "cast it", location="net.py:3", details="  x\n  ^")
    for copied in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(copied) is ArgumentError
        assert str(copied) == str(error)
        assert copied.remedy == "cast it"


def test_combined_errors_keep_the_details_of_the_first():
    first = GradientError("f", "one", location="", details="  an excerpt")
    assert str(combined([first, GradientError("g", "two", location="")])) == "[f] one\n  an excerpt\n[g] two"
