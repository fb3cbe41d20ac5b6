"""`python -m meta deploy MODEL --target TRIPLE -o FOLDER`."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from meta.cli import model_inputs
from meta.cli.formats import FORMATS, Request, format_of
from meta.errors import ArgumentError
from meta.ir.type import TensorType
from meta.tracing.open_sizes import example


def configure(parser: argparse.ArgumentParser) -> None:
    """The model, the machine, and where the sources go."""
    parser.add_argument(
        "model", help=f"a file in one of the formats {', '.join(FORMATS)}; or MODULE:FUNCTION, a function without "
                      "arguments that returns what to compile, and arrays for a call of it"
    )  # fmt: skip
    parser.add_argument("--target", help="the machine, such as aarch64-linux-gnu, or wasm32 for browsers; this one by "
                                         "default")  # fmt: skip
    parser.add_argument("--cpu", help="its processor, by LLVM's name, such as cortex-a72")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the folder to write")
    parser.add_argument("--name", default="", help="what the program is called in C; by default as the model")
    parser.add_argument("--embed", action="store_true", help="put the weights into the code")
    parser.add_argument("--tuning", type=Path, help="a file of choices for its kernels, which tuning has written")
    parser.add_argument("--tune", type=float, metavar="SECONDS",
                        help="first tune the kernels on the machine, and write the choices to the file of --tuning, by "
                             "default tuning.json in the folder")  # fmt: skip
    parser.add_argument("--run", default="", metavar="COMMAND",
                        help='what runs programs on the machine, for --tune: "ssh board", "qemu-aarch64"')  # fmt: skip
    parser.add_argument("--params", type=Path, help="Relay and ONNX: values of parameters, as for import")
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=2,3,224,224",
                        help="Relay and ONNX: another shape for an input than the model's (repeatable)")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Compile the model and write the folder: for browsers if they are the target, else sources.

    Raises ArgumentError for an unknown model or target, and errors of `meta.vm.compile` and `meta.deploy.write`."""
    import meta

    what, inputs = _model(options)
    tuning = options.tuning
    with meta.with_dialect("tvm"):
        if options.tune is not None:
            tuning = tuning or options.output / "tuning.json"
            _tune(meta.vm.compile(what, target=options.target, cpu=options.cpu), inputs, options, tuning)
        executor = meta.vm.compile(what, target=options.target, cpu=options.cpu, tuning=tuning)
        program = executor.program(*inputs)
    stem = options.model.rpartition(":")[2] if ":" in options.model else Path(options.model).stem
    name = options.name or stem
    is_web = executor.cpu is not None and executor.cpu.is_browser
    format = "web" if is_web else "c"
    meta.deploy.write(
        options.output, stem, [program], fuse=executor.fuse, format=format, symbol=name, embed=options.embed
    )  # fmt: skip
    size = sum(file.stat().st_size for file in options.output.glob("program.wasm" if is_web else "*.o"))
    served = f"program.wasm {size:,} bytes; serve it: python -m http.server -d {options.output}"
    print(f"{options.output}:", served if is_web else f"kernels {size:,} bytes; build it there: make")
    return 0


def _tune(executor: Any, inputs: Sequence[Any], options: argparse.Namespace, path: Path) -> None:
    """Tune the program on its machine, print the report, and write the choices."""
    import meta

    program, run = executor.program(*inputs), shlex.split(options.run)
    report = meta.deploy.tune(program, inputs, options.tune, fuse=executor.fuse, run=run)
    print(report)
    path.parent.mkdir(parents=True, exist_ok=True)
    report.save(path)


def _model(options: argparse.Namespace) -> tuple[Any, Sequence[Any]]:
    """What to compile, and arrays for a call of it."""
    path = Path(options.model)
    if ":" in options.model and not path.exists():
        return _from_function(options.model)
    file_format = format_of(path)
    request = Request(path, options.params, model_inputs.shapes(options.shape))
    if file_format.name == "PyTorch":  # the model keeps its parameters, which a module takes as inputs
        from meta.frontend import torch

        model = torch.from_exported(path)
        record = model.record()
        return model, _zeros([p.type for p in record.main.params[: len(record.inputs)]])
    program = file_format.load(request)
    return program.module, _zeros([p.type for p in program.module.main.params])


def _zeros(types: Sequence[Any]) -> list[Any]:
    """Arrays of the types, with sizes of 2 where they are open."""
    from meta.eager.seeds import zeros_of

    return [zeros_of(example(kind)) for kind in types if isinstance(kind, TensorType)]


def _from_function(text: str) -> tuple[Any, Sequence[Any]]:
    module, _, name = text.partition(":")
    sys.path.insert(0, "")
    try:
        function = getattr(import_module(module), name, None)
    except ModuleNotFoundError as error:
        raise ArgumentError("deploy", f"the module {module} is not found: {error}", "a module on the path") from error
    if not callable(function):
        raise ArgumentError("deploy", f"{module} has no function '{name}'", "MODULE:FUNCTION")
    returned: Any = function()
    values = cast("tuple[Any, ...]", returned) if isinstance(returned, tuple) else (returned,)
    return values[0], values[1:]
