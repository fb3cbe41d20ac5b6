"""Public constructors and functions refuse arguments that their annotations exclude, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import ArgumentError
from meta.schema.annotations import CheckedArguments, checked
from tests.python.raw_errors import raw_error

MODULES = (meta.nn, meta.optim, meta.amp, meta.distributed, meta.random)
WRONG = [None, "wrong", object(), {"a": 1}, -1.5, True]


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Classes and functions; records are results, which users do not create."""
    for module in MODULES:
        for name in dir(module):
            value = getattr(module, name)
            is_record = is_dataclass(value) or (inspect.isclass(value) and issubclass(value, tuple))
            if (inspect.isclass(value) or inspect.isfunction(value)) and not is_record:
                yield f"{module.__name__}.{name}", value


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    if inspect.isclass(function):
        is_built = issubclass(function, meta.Model) and function.__init__ is meta.Model.__init__
        return list(inspect.signature(function.build if is_built else function.__init__).parameters.values())[1:]
    return list(inspect.signature(function).parameters.values())


@pytest.mark.parametrize(
    ("name", "function"), list(public()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_arguments_of_a_wrong_kind(name: str, function: Callable[..., Any]) -> None:
    """One wrong value for all required arguments, then for each other one."""
    listed = parameters(function)
    required = [p for p in listed if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    calls = {f"{wrong!r:.20}": partial(function, *[wrong] * len(required)) for wrong in WRONG if required}
    if not inspect.isclass(function) or issubclass(function, CheckedArguments):  # optimizers name several at once
        values: list[Any] = [1] * len(required)
        calls |= {
            f"{p.name}={wrong!r:.20}": partial(function, *values, **{p.name: wrong})
            for p in listed if p.default is not p.empty for wrong in (object(), {"a": 1})
        }  # fmt: skip
    raw = {label: error for label, call in calls.items() if (error := raw_error(call))}
    assert raw == {}, name


CASES = [
    (lambda: meta.nn.Dropout("x"), r"\[Dropout\] p is 'x'; expected a float or an int \("),
    (lambda: meta.nn.Conv2d("3", 4, 3), r"\[Conv2d\] in_channels is '3'; expected an int \("),
    (lambda: meta.nn.Conv2d(3, 4, 3, bias=0), r"\[Conv2d\] bias is 0; expected True or False"),
    (
        lambda: meta.nn.Conv2d(3, 4, (3, "3")),
        r"\[Conv2d\] kernel_size is \(3, '3'\); expected an int or a sequence of ints",
    ),
    (lambda: meta.nn.GELU("erf"), r'\[GELU\] approximate is \'erf\'; expected "none" or "tanh"'),
    (lambda: meta.nn.AdaptiveAvgPool2d(2.0), r"output_size is 2.0; expected an int or a sequence of ints or None"),
    (lambda: meta.nn.Sequential(3), r"\[Sequential\] layers is 3; expected a function or a dict of functions"),
    (lambda: meta.nn.Linear(3), r"\[Linear\] argument 'out_features' is missing; expected in_features, out_features"),
    (lambda: meta.nn.Linear(3, 4, biass=True), r"\[Linear\] unknown argument 'biass'; .*; write bias=True"),
    (
        lambda: meta.nn.Linear(3, 4, True, 5),
        r"\[Linear\] 4 positional arguments; expected at most 3: in_features, out_",
    ),
    (lambda: meta.nn.ReLU(3), r"\[ReLU\] got arguments, but defines no build"),
    (
        lambda: meta.nn.TransformerEncoder(meta.ones(3), 2),
        r"\[TransformerEncoder\] encoder_layer is a tensor; expected a Model",
    ),
    (
        lambda: meta.optim.OneCycleLR(optimizer=-1),
        r"\[OneCycleLR\] optimizer is -1; expected an Optimizer",
    ),
    (
        lambda: meta.optim.with_optimizer(meta.nn.Linear),
        r"\[with_optimizer\] kind is .*; expected a subclass of Optimizer",
    ),
    (lambda: meta.amp.GradScaler(interval=2.5), r"\[GradScaler\] interval is 2.5; expected an int"),
    (lambda: meta.random.permutation("a"), r"\[permutation\] n is 'a'; expected an int"),
    (lambda: meta.distributed.DeviceMesh([2]), r"\[DeviceMesh\] sizes is \[2\]; expected a dict of ints"),
]


@pytest.mark.parametrize(("call", "message"), CASES)
def test_messages(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        call()
    assert caught.value.location.startswith(__file__)


def test_numbers_of_numpy_and_lists_are_accepted() -> None:
    layer = meta.nn.Conv2d(np.int64(2), np.int32(3), [3, 3], padding=np.int64(1), bias=np.bool_(False))
    assert layer(meta.ones((1, 2, 4, 4))).shape == (1, 3, 4, 4)
    assert meta.nn.Dropout(np.float32(0.5)).p == 0.5
    assert meta.nn.Dropout(1).p == 1


def test_subclasses_of_users_have_annotations_of_their_own() -> None:
    class Wide(meta.nn.Linear):
        def build(self, width: str) -> None:
            super().build(width, width)

    assert Wide(3).w.shape == (3, 3)
    with pytest.raises(ArgumentError, match=r"\[Wide\] in_features is 'a'; expected an int"):
        Wide("a")


def test_every_kind_of_annotation() -> None:
    @checked
    def function(
        a: tuple[int, float], b: dict[str, int] | None = None, *rest: str,
        c: NotThere = 0,  # type: ignore[name-defined] # noqa: F821
        **options: Any,
    ) -> int:  # fmt: skip
        return len(rest)

    assert function([1, 2.5], {"x": 1}, "y", "z", c=object(), d=3) == 2
    for arguments, message in [
        (((1,),), r"a is \(1,\); expected \(an int, a float or an int\)"),
        (((1, 2), {"x": "y"}), r"b is {'x': 'y'}; expected a dict of ints or None"),
        (((1, 2), None, "y", 3), r"rest is 3; expected a string"),
        ((), "argument 'a' is missing; expected a, b, c"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            function(*arguments)
