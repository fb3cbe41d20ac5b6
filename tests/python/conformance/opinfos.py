"""torch's database of operator samples: entries in scope, their samples, and which results are random.

torch.testing._internal is private: the version of torch is pinned, and only tests import it."""

from __future__ import annotations

import contextlib
import sys
import unittest
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch

T = TypeVar("T")

ENTRIES = Path(__file__).with_name("entries.txt")
"""Names of the entries in scope, one a line: dense operators of real and complex numbers. Out of scope are sparse and
nested tensors, masked reductions, windows, orthogonal polynomials, strided views of storage, and other devices."""

UNDEFINED = frozenset({"empty", "empty_like", "new_empty"})
"""Entries whose results have undefined values."""


@cache
def database() -> dict[str, Any]:
    """The entries in scope by full name, in torch's order."""
    if "expecttest" not in sys.modules:
        with contextlib.suppress(ImportError):
            import expecttest  # noqa: F401
        sys.modules.setdefault("expecttest", unittest)  # only its TestCase is used, as a base class
    from torch.testing._internal import common_methods_invocations as database

    # Samples of random operators hide their randomness behind this function.
    database.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    names = set(ENTRIES.read_text().split())
    return {op.full_name: op for op in database.op_db if op.full_name in names}


def spread(values: Sequence[T], count: int) -> list[T]:
    """At most `count` values (0: all), evenly over the sequence, the first among them."""
    count = min(count or len(values), len(values))
    return [values[i * len(values) // count] for i in range(count)]


def samples(op: Any, dtype: torch.dtype, count: int, requires_grad: bool = False, strided: bool = False) -> list[Any]:
    """At most `count` samples of an entry (0: all), with non-contiguous tensors if `strided`."""
    torch.manual_seed(0)
    chosen = spread(list(op.sample_inputs("cpu", dtype, requires_grad=requires_grad)), count)
    return [sample.noncontiguous() for sample in chosen] if strided else chosen
