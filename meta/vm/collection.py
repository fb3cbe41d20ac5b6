"""Compilation without garbage collections.

Python's search for cycles visits all living objects, again and again while a program is built from many small ones: a
sixth of the time in which a training step that is on disk is traced and looked up.
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
