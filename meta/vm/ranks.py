"""Programs that communicate: the ranks compare them before they run."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from meta.ir.expr import Call
from meta.ir.module import Module
from meta.ir.visitor import walk
from meta.op.registry import Op

Runner = Callable[[Any], Any]
"""The call of a program, which takes its inputs."""


def agree_on(module: Module) -> str:
    """The digest of a program that has collectives of several ranks, else "". Raises CommunicationError unless all
    processes compile the program.

    The programs may differ in nothing but the index of the rank's GPU."""
    if not any(_communicates(b.value) for function in module.functions.values() for b in walk(function)):
        return ""
    text = re.sub(r"cuda\(\d+\)", "cuda", str(module))
    digest = sha256(text.encode()).hexdigest()
    _compare("compile", digest)
    return digest


class Turns:
    """The programs of an executor that communicate, which ranks compare again at a call of another one than the last:
    ranks that get other sizes would exchange what does not belong together."""

    def __init__(self) -> None:
        self._last = ""

    def compiled(self, digest: str) -> None:
        """Note a program that the ranks have just compared, for the call that it is compiled for."""
        self._last = digest

    def checked(self, run: Runner, digest: str) -> Runner:
        """A program's call, after the comparison that it needs."""

        def compared(inputs: Any) -> Any:
            if self._last != digest:
                _compare("call", digest)
                self._last = digest
            return run(inputs)

        return compared


def _compare(where: str, digest: str) -> None:
    from meta.backend.torch.groups import agree

    agree(where, "the program", digest)


def _communicates(value: object) -> bool:
    if not isinstance(value, Call) or not isinstance(value.op, Op) or value.op.family != "collective":
        return False
    return value.args[value.op.schema.index["ranks"]] != 1
