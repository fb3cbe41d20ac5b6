"""`python -m meta import MODEL [--examine] [--run] [--explain] [--profile]`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from meta.cli import model_inputs
from meta.cli.formats import FORMATS, Format, ImportedProgram, Request, format_of
from meta.errors import ArgumentError, value_text
from meta.ir.analysis import op_counts
from meta.ir.type import TupleType, Type
from meta.tree import named_leaves


def configure(parser: argparse.ArgumentParser) -> None:
    """The program, its parameters and inputs, and what to do with it."""
    parser.add_argument("model", type=Path, help=f"a file in one of the formats {', '.join(FORMATS)}")
    parser.add_argument("--examine", action="store_true", help="only report its operators, and what is not supported")
    parser.add_argument("--run", action="store_true", help="run it, and print outputs and times")
    parser.add_argument(
        "--explain", action="store_true",
        help="list its operators, the program that it became, and with --run the kernels that run it",
    )  # fmt: skip
    parser.add_argument("--profile", action="store_true", help="run it, and print the time of each kernel")
    _configure_running(parser)


def _configure_running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--params", type=Path,
                        help="Relay and ONNX: values of parameters and inputs, which become constants: .npz or .params "
                             "(relay.save_param_dict)")  # fmt: skip
    parser.add_argument("--input", action="append", default=[], metavar="NAME=FILE",
                        help="an input, from a .npy or .npz; drawn at random when not given (repeatable)")  # fmt: skip
    parser.add_argument("--size", action="append", default=[], metavar="batch=2",
                        help="a symbolic size, of the inputs drawn at random (repeatable)")  # fmt: skip
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=2,3,224,224",
                        help="Relay and ONNX: another shape for an input than the model's (repeatable)")  # fmt: skip
    parser.add_argument("--device", default="cpu", help='where it runs: "cpu" (default), "cuda", "cuda:1"')
    parser.add_argument("--seed", type=int, default=0, help="of inputs drawn at random (default: 0)")
    parser.add_argument("--repeat", type=int, default=5, help="timed calls (default: 5)")
    parser.add_argument("--interpreter", action="store_true", help="run operator by operator instead of on the VM")


def run(options: argparse.Namespace) -> int:
    """Examine, import and run the program, as the options ask; 1 if --examine finds what is not supported."""
    _check_numbers(options)
    files, sizes = model_inputs.pairs(options.input, "--input", "x.npy"), model_inputs.sizes(options.size)
    file_format = format_of(options.model)
    request = Request(options.model, options.params, model_inputs.shapes(options.shape), options.device)
    if options.examine:
        report = file_format.examine(request)
        print(report)
        return 0 if report.supported else 1
    if options.explain:
        print(file_format.examine(request))
    program = _imported(file_format, request)
    if options.explain:
        print(program.module)
    if options.run or options.profile:
        _run(program, options, files, sizes)
    else:
        _show_types(program)
    return 0


def _check_numbers(options: argparse.Namespace) -> None:
    """Raise ArgumentError for numbers out of range."""
    if not 0 <= options.seed < 2**32:
        raise ArgumentError("import", f"--seed {value_text(options.seed)}", "a number from 0 to 2**32 - 1")
    if options.repeat < 0:
        raise ArgumentError("import", f"--repeat {value_text(options.repeat)}", "a number from 0")


def _imported(file_format: Format, request: Request) -> ImportedProgram:
    start = time.perf_counter()
    program = file_format.load(request)
    seconds = time.perf_counter() - start
    calls = sum(op_counts(program.module.main).values())
    print(f"imported {request.path.name} ({file_format.name}) in {seconds * 1e3:.0f} ms: {calls} operator calls")
    return program


def _show_types(program: ImportedProgram) -> None:
    main = program.module.main
    for name, param in zip(program.inputs, main.params, strict=not program.state):
        print(f"input {name}: {param.type!r}")
    for path, kind in _outputs(main.body.type, "output"):
        print(f"{path}: {kind!r}")


def _outputs(kind: Type, name: str) -> Iterator[tuple[str, Type]]:
    if not isinstance(kind, TupleType):
        yield name, kind
        return
    for i, field in enumerate(kind.fields):
        yield from _outputs(field, f"{name}.{i}")


def _run(
    program: ImportedProgram, options: argparse.Namespace, files: Mapping[str, str], sizes: Mapping[str, int]
) -> None:
    import meta

    values = model_inputs.arrays(program.module.main, program.inputs, files, sizes, options.seed)
    inputs = [*(meta.array(x, device=options.device) for x in values), *program.state]
    executor = meta.vm.compile(program.module, options.device)

    def call() -> Any:
        out = meta.interpreter.run.run(program.module, *inputs) if options.interpreter else executor(*inputs)
        meta.synchronize(options.device)
        return out

    start = time.perf_counter()
    result = call()
    print(f"first call (compiles) {(time.perf_counter() - start) * 1e3:.0f} ms")
    times = [_seconds(call) for _ in range(options.repeat)]
    if times:
        print(f"then {float(np.median(times)) * 1e3:.2f} ms a call (median of {len(times)})")
    _show("output", result)
    if options.explain and not options.interpreter:
        print(executor.explain(*inputs))
    if options.profile:
        call()  # compiles the program that can be timed
        with meta.profiler.profile() as profile:
            call()
        print(profile)


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _show(name: str, value: object) -> None:
    """A line for each tensor of the result, and its values."""
    for path, tensor in named_leaves(value, name=name):
        values: Any = tensor.numpy()
        text = np.array2string(values, precision=4, threshold=20, edgeitems=3, suppress_small=True)
        print(f"{path}: {tensor.type!r}\n{text}")
