"""Values of nested variables in registers: which of them are computed before their use."""

from __future__ import annotations

import pytest

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.te.registers import values_in_registers


@pytest.mark.parametrize("lazy", [False, True])
def test_loads_that_may_be_out_of_bounds_stay_under_their_condition(lazy: bool) -> None:
    tvm.load()
    tirx = tvm.tirx
    source, target = (tirx.decl_buffer((n,), "float32", name) for n, name in ((4, "source"), (1, "target")))
    position, inner, outer = tirx.Var("position", "int32"), tirx.Var("inner", "float32"), tirx.Var("outer", "float32")
    value = tirx.Let(outer, tirx.Let(inner, tirx.BufferLoad(source, [position]), inner * inner), outer + outer)
    if lazy:
        value = tirx.if_then_else(position < 4, value, tirx.const(0, "float32"))
    func = tvm.PrimFunc([source, target, position], tvm.BufferStore(target, value, [0]))
    changed = values_in_registers(func)
    assert tvm.structural_equal(func, changed) is lazy
