"""What users do with the tape: gradient modes and operators of their own."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from meta.autograd.engine import grad_mode


def no_grad() -> AbstractContextManager[None]:
    """Record no gradients inside the block or decorated function, in this thread."""
    return grad_mode(False)


def enable_grad() -> AbstractContextManager[None]:
    """Record gradients inside the block or decorated function, in this thread."""
    return grad_mode(True)


class Function:
    """placeholder"""


_ = Any
