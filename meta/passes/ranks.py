"""Programs that communicate: the ranks compare them before they run."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

from meta._generated.table import FAMILIES
from meta.ir.builder import Module
from meta.ir.expr import Call
from meta.ir.visitor import walk
from meta.op.registry import Op

COLLECTIVES: Final = tuple(name for name, family in FAMILIES.items() if family == "collective")
Runner = Callable[[Any], Any]
"""The call of a program, which takes its inputs."""


def agree_on(module: Module) -> str:
    """The digest of a program with collectives, "" if they are of one rank. Raises CommunicationError unless all
    processes compile the program.

    The programs may differ in nothing but the index of the rank's GPU."""
    if not any(_communicates(b.value) for function in module.functions.values() for b in walk(function)):
        return ""
    text = re.sub(r"cuda\(\d+\)", "cuda", str(module))
    digest = sha256(text.encode()).hexdigest()
    _compare("compile", digest)
    return digest


class LastProgram:
    """The communicating program that an executor ran last. Ranks compare programs again when a call runs another one:
    with unequal sizes, collectives of different programs would exchange data."""

    def __init__(self) -> None:
        self._digest = ""

    def compare_before(self, run: Runner, digest: str) -> Runner:
        """`run`, preceded by a comparison if the last call ran another program. The ranks have just compared this one,
        because the next call compiled it."""
        self._digest = digest

        def compared(inputs: Any) -> Any:
            if self._digest != digest:
                _compare("call", digest)
                self._digest = digest
            return run(inputs)

        return compared


def _compare(where: str, digest: str) -> None:
    from meta.backend.torch.groups import agree

    agree(where, "the program", digest)


def _communicates(value: object) -> bool:
    if not isinstance(value, Call) or not isinstance(value.op, Op) or value.op.family != "collective":
        return False
    return value.args[value.op.schema.index["ranks"]] != 1
