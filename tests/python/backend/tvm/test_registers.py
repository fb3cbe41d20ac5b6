"""Values of nested variables in registers: which of them are computed before their use."""

from __future__ import annotations

from typing import Any

import pytest

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.workarounds.registers import values_in_registers


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
    assert not tvm.structural_equal(func, changed)
    everywhere, outside_of_branches = (
        changed,
        tvm.structural_map(changed, (tirx.IfThenElse, lambda _: tirx.Evaluate(0))),
    )
    assert [loads_of(source, part) for part in (everywhere, outside_of_branches)] == [1, 0 if lazy else 1]


def loads_of(buffer: Any, node: Any) -> int:
    """How often a statement loads from a buffer."""
    loads: list[bool] = []
    tvm.structural_walk(node, (tvm.TensorLoad, lambda load: loads.append(load.source.same_as(buffer))))
    return sum(loads)


def test_values_that_depend_on_other_variables_are_computed_once() -> None:
    """Each is stored before the next reads it: as nested variables they would be substituted, which doubles them."""
    tvm.load()
    tirx = tvm.tirx
    source, target = (tirx.decl_buffer((1,), "float32", name) for name in ("source", "target"))
    root, square, sum_ = (tirx.Var(name, "float32") for name in ("root", "square", "sum"))
    inner = tirx.Let(square, root * root, square + square)
    value = tirx.Let(root, tirx.BufferLoad(source, [0]), tirx.Let(sum_, inner, sum_ * sum_ + root))
    changed = values_in_registers(tvm.PrimFunc([source, target], tvm.BufferStore(target, value, [0])))
    variables: list[object] = []
    stores: list[object] = []
    tvm.structural_walk(changed, [(tirx.Let, variables.append), (tvm.BufferStore, stores.append)])
    assert (len(variables), len(stores)) == (0, 4)
