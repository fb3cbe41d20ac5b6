"""Compilation, and imports of this package, without garbage collections.

Python's search for cycles visits all living objects, again and again while a program is built from many small ones. It
took a fifth of the processor time in which BERT-base's training step is traced, transformed and looked up on disk, and
2 % of the processor time of the first kernel of a process.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Generator[None, None, None]:
    """No search for cycles during the block, unless the program asks for one."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
