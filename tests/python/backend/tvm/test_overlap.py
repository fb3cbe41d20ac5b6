"""Which kernels may write a result over an operand."""

from __future__ import annotations

import pytest

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule import buffers


@pytest.mark.parametrize("repetitions", [1, 3])
@pytest.mark.parametrize("split", [False, True])
def test_blocks_that_run_again_read_elements_that_they_wrote(repetitions: int, split: bool) -> None:
    """A kernel y = x * 2, within a loop that its block does not depend on."""
    x = tvm.te.placeholder((8,), "float32", "x")
    y = tvm.te.compute((8,), lambda i: x[i] * tvm.tirx.const(2.0, "float32"), "y")
    sch = tvm.Schedule(tvm.create_prim_func([x, y]))
    if split:
        sch.split(sch.get_loops(sch.get_sblock("y"))[0], factors=[None, 4])
    function = sch.mod["main"]
    nest = function.body.block.body
    loop = tvm.For(tvm.Var("again", "int32"), 0, repetitions, nest.kind, nest)
    repeated = tvm.structural_map(function, (tvm.For, lambda f: loop if f.same_as(nest) else f))
    assert buffers.may_share(repeated, *repeated.params) is (repetitions == 1)
