"""Programs that communicate: the ranks compare them before they run."""

from __future__ import annotations

import re
from hashlib import sha256

from meta.ir.expr import Call
from meta.ir.module import Module
from meta.ir.visitor import walk
from meta.op.registry import Op


def agree_on(module: Module) -> None:
    """Raise CommunicationError unless all processes compile this program, if it has collectives of several ranks.

    The programs may differ in nothing but the index of the rank's GPU."""
    if not any(_communicates(b.value) for function in module.functions.values() for b in walk(function)):
        return
    from meta.backend.torch.groups import agree

    text = re.sub(r"cuda\(\d+\)", "cuda", str(module))
    agree("compile", "the program", sha256(text.encode()).hexdigest())


def _communicates(value: object) -> bool:
    if not isinstance(value, Call) or not isinstance(value.op, Op) or value.op.family != "collective":
        return False
    return value.args[value.op.schema.index["ranks"]] != 1
