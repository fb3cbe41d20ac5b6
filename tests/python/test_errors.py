"""Errors: the four parts as fields, rendering, attribution, copies."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import meta
from meta import nn, optim
from meta.dim import sym
from meta.errors import ArgumentError, GradientError, MetaError, TypeInferenceError, attributed, combined


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


LONG = 10**60_000


@pytest.mark.parametrize(
    "call",
    [
        lambda: meta.ones((4,))[LONG], lambda: meta.ones((4, 4))[0, -LONG], lambda: meta.ones((4,)).cast(LONG),
        lambda: meta.ones((4,)).to(LONG), lambda: meta.ones((2,), device="cuda:" + "9" * 60_000),
        lambda: meta.random.seed(LONG), lambda: sym("n") * LONG, lambda: sym("n") + LONG,
        lambda: nn.Linear(LONG, 3), lambda: nn.Linear(-1, 3), lambda: nn.Bilinear(-1, 2, 3),
        lambda: nn.Conv2d(1, 1, LONG), lambda: nn.Conv2d(-1, 1, 3), lambda: nn.Dropout(LONG), lambda: nn.LSTM(2, LONG),
        lambda: optim.SGD(nn.Linear(2, 2), learning_rate=LONG), lambda: optim.Adam(nn.Linear(2, 2), betas=LONG),
        lambda: optim.RMSprop(nn.Linear(2, 2), alpha=LONG), lambda: optim.SGD(nn.Linear(2, 2), 0.1, nesterov=LONG),
        lambda: optim.CosineAnnealingLR(optim.SGD(nn.Linear(2, 2)), LONG),
        lambda: optim.OneCycleLR(optim.SGD(nn.Linear(2, 2), momentum=0.9), None, 10),
        lambda: optim.OneCycleLR(optim.SGD(nn.Linear(2, 2), momentum=0.9), 0.1, 10, rising=LONG),
    ],
)  # fmt: skip
def test_numbers_of_any_size_are_refused_by_name(call: Callable[[], Any]) -> None:
    with pytest.raises(MetaError) as caught:
        call()
    assert caught.value.subject
    assert len(str(caught.value)) < 600


def test_messages_are_bounded() -> None:
    with pytest.raises(
        TypeInferenceError, match=r"\(4,\) has 4 elements, \(1, 1, .* characters\) \.\.\. .*1\)"
    ) as caught:
        meta.reshape(meta.ones((4,)), (1,) * 5000)
    assert len(str(caught.value)) < 2500


def test_numbers_of_devices() -> None:
    assert meta.device("cpu:0") is meta.device("cpu")
    assert str(meta.device("cuda:12")) == "cuda(12)"
    assert meta.device("cuda(12)") is meta.device("cuda:12")
