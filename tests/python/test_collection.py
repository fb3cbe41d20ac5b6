"""Programs are compiled without garbage collections, which go on afterwards."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import meta
from meta.passes.manager import Pass
from meta.progress import without_collection


def test_it_goes_on_as_before() -> None:
    assert gc.isenabled()
    with without_collection():
        assert not gc.isenabled()
        with without_collection():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_goes_on_after_an_error() -> None:
    def fail() -> None:
        with without_collection():
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert gc.isenabled()


def test_a_program_that_switched_it_off_keeps_it_off() -> None:
    gc.disable()
    try:
        with without_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_lasting_objects_are_not_young_afterwards() -> None:
    frozen_by_others = gc.get_freeze_count()
    gc.unfreeze()
    try:
        with without_collection(lasting=True):
            kept = [[i] for i in range(3)]
        young = {id(each) for each in gc.get_objects(generation=0)}
        assert young.isdisjoint(map(id, kept))
        assert gc.get_freeze_count() == 0
    finally:
        if frozen_by_others:
            gc.freeze()


def test_objects_that_the_program_froze_stay_frozen() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    with without_collection(lasting=True):
        pass
    assert gc.get_freeze_count() == frozen > 0


def test_compilations_are_without_it() -> None:
    states: list[bool] = []

    def look(module: Any) -> Any:
        states.append(gc.isenabled())
        return module

    @meta.trace
    def doubled(x: Any) -> Any:
        return x + x

    meta.vm.compile(doubled, passes=Pass("look", look, "Keep the module."))(meta.ones((3,)))
    assert states
    assert not any(states)
    assert gc.isenabled()
