"""Unequal numbers of rows that both ranks had before, in an eager or a compiled step. After the error the group is
unusable."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import meta
from meta import distributed
from meta.errors import CommunicationError
from tests.python.distributed.training import MLP, new_step, vectors


def check_numbers_of_rows_that_both_ranks_had() -> None:
    x, y = vectors(np.random.default_rng(1), "float64")
    step: Any = distributed.data_parallel()(new_step(MLP, "sgd", "float64"))
    step = meta.vm.compile(step, device="cpu") if os.environ["STEP"] == "compiled" else step
    for rows in (4, 3, 4, 3):
        step(meta.array(x[:rows]), meta.array(y[:rows]))
    rows = 3 + distributed.rank()
    compared = "the program" if os.environ["STEP"] == "compiled" else "the list of arguments"
    with pytest.raises(
        CommunicationError, match=rf"rank [01] (waits )?for rank [01] in .*the comparison of {compared}"
    ):
        step(meta.array(x[:rows]), meta.array(y[:rows]))
