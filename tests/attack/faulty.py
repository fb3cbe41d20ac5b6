"""Cases that fail on purpose, for the tests of `workers`."""

from __future__ import annotations

import ctypes
import time


def case(seed: int, index: int) -> str:
    """Case 2 crashes, 5 hangs, 7 raises, 8 returns a problem."""
    del seed
    match index:
        case 2:
            ctypes.string_at(0)
        case 5:
            time.sleep(1000)
        case 7:
            raise KeyError("seven")
        case 8:
            return "eight"
        case _:
            pass
    return ""
