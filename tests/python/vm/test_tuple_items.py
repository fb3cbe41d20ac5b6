"""Groups of operators that read several items of several tuples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meta.backend.tvm import adapter as tvm
from meta.vm.plan.fusion import fuse_operators

ITEMS = 3


def _module(count: int, seed: int) -> tuple[Any, Any]:
    """A Relax module that adds up the items of `count` tuples in a random order, and that order. Item k of a
    tuple is k + 1 times the last item of the tuple before, at first x."""
    tensor = tvm.TensorType((8,), "float32")
    builder, x = tvm.BlockBuilder(), tvm.RelaxVar("x", tensor)
    a = tvm.te.placeholder((8,), "float32")
    scaled = [_scaled(a, k + 1) for k in range(ITEMS)]
    kernel = tvm.te.create_prim_func([a, *scaled]).without_attr("global_symbol").with_attr("op_pattern", 8)
    order = np.random.default_rng(seed).permutation(ITEMS * count)
    with builder.function("main", [x]):
        with builder.dataflow():
            target, parts, last = builder.add_func(kernel, "scaled"), [], x
            for _ in range(count):
                items = builder.emit(tvm.relax.call_tir(target, [last], [tensor] * ITEMS))
                parts += [builder.emit(tvm.RelaxTupleGetItem(items, k)) for k in range(ITEMS)]
                last = parts[-1]
            total = parts[order[0]]
            for place in order[1:]:
                total = builder.emit_te(_added, total, parts[place])
            result = builder.emit_output(total)
        builder.emit_func_output(result)
    return builder.get(), order


def _scaled(a: Any, factor: int) -> Any:
    return tvm.te.compute((8,), lambda i: a[i] * tvm.tirx.const(float(factor), "float32"))


def _added(total: Any, part: Any) -> Any:
    return tvm.te.compute((8,), lambda i: total[i] * tvm.tirx.const(0.5, "float32") + part[i])


@pytest.mark.parametrize("seed", range(3))
def test_items_of_several_tuples_in_one_group(seed: int) -> None:
    """TVM's FuseOps loses some of them: most of these modules had a variable without a value."""
    module, order = _module(7, seed)
    fused = fuse_operators(tvm.relax_transform.AnnotateTIROpPattern()(module))
    fused = tvm.relax_transform.FuseTIR()(fused)
    assert len(fused.functions) == 3  # main, the kernel of the tuples, and one of all other operators
    main = tvm.VirtualMachine(tvm.compile(fused, "llvm"), tvm.cpu())["main"]
    x = np.arange(1, 9, dtype=np.float32)
    parts, last = [], x
    for _ in range(7):
        parts += [last * (k + 1) for k in range(ITEMS)]
        last = parts[-1]
    total = parts[order[0]]
    for place in order[1:]:
        total = total / 2 + parts[place]
    np.testing.assert_allclose(main(tvm.tensor(x)).numpy(), total, rtol=1e-5)
