"""Checks of samples as programs: eager, interpreted and compiled results agree, and so do gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta import tracing
from meta.device import Device
from meta.dtype import is_float
from meta.eager.engine import grad
from meta.eager.ndarray import NDArray, array
from meta.interpreter.run import run
from meta.ir.parser import parse
from meta.ir.printer import to_text
from meta.op.dispatch import with_dialect
from meta.passes.auto_diff import auto_diff
from meta.testing.arrays import to_numpy
from meta.testing.call import OperatorCall, flat_results
from meta.testing.derivatives import cotangent, gradient_inputs
from meta.testing.generic import check_values, make_call, tolerance_of
from meta.testing.samples import Sample
from meta.testing.tolerance import compare
from meta.tree import named_leaves


def trace_call(call: OperatorCall) -> Any:
    """The call as a traced function of the list of its arrays."""

    @tracing.trace
    def program(arrays: list[Any]) -> Any:
        return call.with_arrays(arrays).run()

    return program


def check_interpreted(sample: Sample, dtype: str = "") -> None:
    """The interpreter agrees with eager execution, and the program's text parses to the same program."""
    host = make_call(sample, dtype)
    program = trace_call(host.to_meta())
    eager = flat_results(host.to_meta().run())
    if not isinstance(eager[0], NDArray):
        return
    record = program.record(host.to_meta().arrays())
    text = to_text(record.module)
    assert to_text(parse(text)) == text, "parsing the printed program gives another program"
    interpreted = flat_results(run(record.module, *host.to_meta().arrays()))[: len(eager)]
    for i, (a, b) in enumerate(zip(interpreted, eager, strict=True)):
        assert a.type is b.type, f"interpreted result {i} is {a.type!r}, eager {b.type!r}"
        compare(f"interpreted {sample.op}", to_numpy(a), to_numpy(b), tolerance=(0.0, 0.0))


def check_compiled(rows: Sequence[tuple[Sample, str]]) -> None:
    """The virtual machine agrees with the references of (sample, dtype), which are calls of one program: eight calls in
    one program compile in half of the time of eight programs."""
    from meta.vm import compile as compile_program

    cases = [(sample, dtype, make_call(sample, dtype)) for sample, dtype in rows]
    # Operators such as `shape` give numbers, which are no results of programs.
    cases = [case for case in cases if isinstance(flat_results(case[2].to_meta().run())[0], NDArray)]
    calls = [host.to_meta() for _, _, host in cases]

    @tracing.trace
    def program(arrays: list[list[Any]]) -> list[Any]:
        return [call.with_arrays(each).run() for call, each in zip(calls, arrays, strict=True)]

    results = compile_program(program)([host.to_meta().arrays() for _, _, host in cases])
    for (sample, _, host), result in zip(cases, results, strict=True):
        check_values(sample, host, result, f"{sample!r} on the virtual machine")


def check_fused(sample: Sample, dtype: str = "", dialect: str = "tvm") -> None:
    """The operator of one dialect, fused with an operator that reads its results, agrees with the reference."""
    from meta.vm import compile as compile_program

    host = make_call(sample, dtype)
    if not isinstance(flat_results(host.to_meta().run())[0], NDArray):
        return
    call = host.to_meta()

    @tracing.trace
    def program(arrays: list[Any]) -> Any:
        results = call.with_arrays(arrays).run()
        same = tuple(meta.logical_and(r, r) if r.dtype == "bool" else meta.maximum(r, r) for r in flat_results(results))
        return same if isinstance(results, (tuple, list)) else same[0]

    with with_dialect(dialect):
        compiled = compile_program(program)(host.to_meta().arrays())
    check_values(sample, host, compiled, f"{sample.op}, fused, on the virtual machine")


def check_program_gradients(sample: Sample, dtype: str = "float32") -> None:
    """The gradients of the program, run by the interpreter, agree with the tape's."""
    host = make_call(sample, dtype)
    inputs = gradient_inputs(host)
    call = host.to_meta()
    arrays = call.arrays()
    for i in inputs:
        arrays[i].requires_grad = True
    results = flat_results(call.run())
    used = [i for i, r in enumerate(results) if r.requires_grad]
    dys = {i: array(cotangent(sample, i, r)) for i, r in enumerate(results) if is_float(r.dtype)}
    eager = grad([results[i] for i in used], [arrays[i] for i in inputs], [dys[i] for i in used], allow_unused=True)

    gradients = program_gradients(host.to_meta(), inputs, [(dy, i in used) for i, dy in dys.items()])
    rtol, atol = tolerance_of(sample, dtype)
    for i, ours, theirs in zip(inputs, gradients, eager, strict=True):
        expected = to_numpy(ours) * 0 if theirs is None else to_numpy(theirs)
        compare(f"{sample.op}: program gradient {i}", to_numpy(ours), expected, tolerance=(rtol, atol))


def program_gradients(call: OperatorCall, inputs: Sequence[int], dys: Sequence[tuple[NDArray, bool]]) -> list[Any]:
    """The gradients of the arrays at `inputs` by the interpreter, from the traced and differentiated call.

    dys: the gradient of each floating result, and whether the result depends on differentiable arguments."""
    record = trace_call(call).record(call.arrays())
    module = auto_diff([record.inputs[i] for i in inputs])(record.module)
    cotangents = [dy if used else dy * 0 for dy, used in dys]
    return flat_results(run(module, *call.arrays(), *cotangents))[-len(inputs) :]


def run_vm_model(model: Any, device: Device | str, args: Sequence[Any]) -> Any:
    """The result of `model(*args)`, compiled for `device` and run on the virtual machine.

    model: a Model, a traced function or a Module.  args: arrays on any device; they are moved to `device`. The result
    has the structure of the eager one, with arrays on `device`."""
    from meta.vm import compile as compile_program

    executor = compile_program(model, device=device)
    return executor(*[a.to(device=device) if isinstance(a, NDArray) else a for a in args])


def run_model(model: Any, device: Device | str, args: Sequence[Any], *, rtol: float = 1e-5, atol: float = 1e-5) -> Any:
    """The eager result of `model(*args)`, compared with the result of the virtual machine.

    Raises AssertionError if they differ by more than atol + rtol * |eager|."""
    from meta.testing.arrays import check

    moved = [a.to(device=device) if isinstance(a, NDArray) else a for a in args]
    eager = model(*moved)
    check(_leaves(run_vm_model(model, device, args)), _leaves(eager), rtol=rtol, atol=atol)
    return eager


def _leaves(result: object) -> list[Any]:
    return [leaf for _, leaf in named_leaves(result, NDArray)]
