"""The command line: `python -m meta codegen | demo | env | op | ops | explain | import | plan | relay`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from meta.errors import MetaError, NotSupportedError, install_hint

COMMANDS = {
    "codegen": "write a module with typed functions of a package's operators, for editors and type checkers",
    "demo": "train a small convolutional network on handwritten digits: eager, on the VM, and in bfloat16",
    "env": "print versions, devices and dialects, and why a device or dialect is off",
    "op": "print every part of an operator with file and line, or write the parts of a new one",
    "ops": "list the operators, or print which parts each one has",
    "explain": "print which dialects accept an operator on the given argument types, and why",
    "import": "read a model of another system: report what is supported, import it, run it, profile it",
    "plan": "print what a training step keeps on each rank and communicates, on any number of ranks",
    "relay": "the same as import --run",
}

MODULES = {"import": "import_model"}
"""The modules of commands whose names are keywords of Python."""

EXTRAS = {
    "sklearn": "demo", "matplotlib": "demo", "rich": "demo", "torch": "torch", "cuda": "cuda", "onnx": "onnx",
    "onnx_ir": "onnx",
}  # fmt: skip
"""The extra that installs a package, by the name it is imported by."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status. Prints a MetaError, or that an extra is missing, without a traceback."""
    parser = argparse.ArgumentParser(prog="python -m meta", description="An operator registry framework on Apache TVM.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    selected = next((a for a in (sys.argv[1:] if argv is None else argv) if a in COMMANDS), None)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if name == selected:
            _module(name).configure(command)
    options = parser.parse_args(argv)
    try:
        return _run(options)
    except MetaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _module(command: str) -> Any:
    return import_module(f"meta.cli.{MODULES.get(command, command)}")


def _run(options: argparse.Namespace) -> int:
    """Run the command of `options`. Raises NotSupportedError for a missing package that an extra installs."""
    try:
        return _module(options.command).run(options)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in EXTRAS:
            raise
        extra = EXTRAS[name]
        problem, expected = f"the package {name} is not installed", f"the packages of the extra '{extra}'"
        raise NotSupportedError(options.command, problem, expected, install_hint(extra), location="") from None
