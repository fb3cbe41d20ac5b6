"""Copies between devices: which of them a program may hold, and which dialects run them."""

from __future__ import annotations

from typing import Any

import pytest

from meta.device import device
from meta.errors import DeviceError
from meta.ir.builder import Module
from meta.ir.expr import CallInfo
from meta.ir.parser import parse
from meta.ir.printer import to_text
from meta.ir.type import tensor_type
from meta.op.dispatch import candidates
from meta.op.registry import get
from meta.vm.lower.choose import choose_all
from tests.python.vm.programs import program

CUDA = device("cuda")


def copy(source: str, target: str) -> Module:
    kind = tensor_type((2,), "int64", source)
    return program({"key": kind}, lambda ops, key: [ops.device_copy(key, device(target))])


def test_a_program_may_read_another_device() -> None:
    """Random keys are on the CPU, and copied to the device of the numbers."""
    choices = choose_all(copy("cpu", "cuda"), CUDA)
    assert [c.implementation.dialect.name for c in choices.listed()] == ["tvm"]


def test_a_program_from_a_file_names_the_dialect() -> None:
    text = to_text(copy("cpu", "cuda")).replace("device_copy(", "tvm.device_copy(")
    choices = choose_all(parse(text), CUDA)
    assert [c.implementation.dialect.name for c in choices.listed()] == ["tvm"]


def test_results_stay_on_the_device_of_the_program() -> None:
    with pytest.raises(DeviceError, match=r"\[vm\] device_copy is on cpu; expected cuda, for which the prog"):
        choose_all(copy("cuda", "cpu"), CUDA)


@pytest.mark.parametrize(("target", "refusal"), [("cpu", None), ("cuda", "the result is on cuda")])
def test_numpy_copies_within_the_cpu(target: str, refusal: str | None) -> None:
    types: Any = tensor_type((2,), "int64"), tensor_type((2,), "int64", target)
    call = CallInfo(get("device_copy"), (types[0], device(target)), types[1], device("cpu"))
    assert {c.implementation.dialect.name: c.refusal for c in candidates(call)}["reference"] == refusal
