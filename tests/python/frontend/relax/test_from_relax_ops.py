"""Each row of the table of Relax's operators computes what TVM does."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta.backend.tvm import adapter as tvm
from meta.frontend.relax import from_relax
from meta.frontend.relax.ops._table import Shared, table
from meta.frontend.relay.convert.call import converters
from tests.python.frontend.relax.cases import cases


def leaves(value):
    return [value] if hasattr(value, "numpy") else [leaf for item in value for leaf in leaves(item)]


def module_of(chosen):
    """All calls in one dataflow block, with a parameter for each of their inputs."""
    tvm.load()
    builder, params, results = tvm.BlockBuilder(), [], []
    for case in chosen:
        for array in case.inputs:
            kind = tvm.TensorType(list(array.shape), str(array.dtype))
            params.append(tvm.RelaxVar(f"x{len(params)}", kind))
    rest = iter(params)
    with builder.function("main", params):
        with builder.dataflow():
            for case in chosen:
                expressions = case.build(tvm.relax.op, *(next(rest) for _ in case.inputs))
                first, *others = expressions if isinstance(expressions, list) else [expressions]
                value = builder.emit(first)
                for following in others:
                    value = builder.emit(following(value))
                results.append(value)
            result = builder.emit_output(tvm.RelaxTuple(results))
        builder.emit_func_output(result)
    return builder.get()


def inputs_of(chosen):
    return [np.asarray(array) for case in chosen for array in case.inputs]


@pytest.fixture(scope="module")
def computed():
    """The cases with the results of TVM, or of NumPy."""
    all_cases = cases()
    chosen = [case for case in all_cases if case.expected is None]
    target = tvm.Target({"kind": "llvm", "opt-level": 0})  # compiles in half of the time
    machine = tvm.VirtualMachine(tvm.compile(module_of(chosen), target), tvm.cpu())
    results = list(machine["main"](*map(tvm.tensor, inputs_of(chosen))))
    pairs = [(case, [x.numpy() for x in leaves(r)]) for case, r in zip(chosen, results, strict=True)]
    return pairs + [(case, list(case.expected)) for case in all_cases if case.expected is not None]


def test_every_row_has_a_case():
    elsewhere = {"nonzero", "inspect.tensor_ndim", "inspect.tensor_shape_i"}
    assert set(table.names()) == {case.name for case in cases()} | elsewhere


def test_every_row_is_an_operator_of_relax():
    operators = {name.removeprefix("relax.") for name in tvm.Op.list_op_names() if name.startswith("relax.")}
    assert set(table.names()) <= operators


def test_shared_rows_are_converters_of_relay():
    shared = {row.relay_name for row in table.rows().values() if isinstance(row, Shared)}
    assert len(shared) > 60
    assert shared <= set(converters.names())


def test_rows_compute_what_tvm_does(computed):
    cases = [case for case, _ in computed]
    program = from_relax(module_of(cases))
    with meta.with_dialect(["torch", "reference", "tvm"]):  # converters are tested: most need no compiled kernel
        results = meta.interpreter.run.run(program, *inputs_of(cases))
    for (case, expected), result in zip(computed, results, strict=True):
        arrays = [x.numpy() for x in leaves(result)]
        assert len(arrays) == len(expected), case.name
        for ours, theirs in zip(arrays, expected, strict=True):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), case.name
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5, err_msg=f"{case.name} {case.label}")
