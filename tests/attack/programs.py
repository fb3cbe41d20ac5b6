"""Random programs of elementwise operators on special values: interpreter and virtual machine agree with eager calls,
bit by bit."""

from __future__ import annotations

from tests.python.vm.test_special_values import DTYPES, test_random_programs


def case(seed: int, index: int) -> str:
    """One program."""
    test_random_programs(1000 * seed + index // len(DTYPES) + 1000, DTYPES[index % len(DTYPES)])
    return ""
