"""The command line: `python -m meta codegen | demo | deploy | env | op | ops | explain | import | plan | relay |
torch`."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from meta import __version__
from meta.cli.text import styled
from meta.errors import MetaError, NotSupportedError, did_you_mean, install_hint

GROUPS = {
    "operators": {
        "op": "print every part of an operator with file and line, or write the parts of a new one",
        "ops": "list the operators, or print which parts each one has",
        "explain": "print which dialects accept an operator on the given argument types, and why",
        "torch": "write a package that offers a package's operators to users of torch, with torch.library definitions",
        "codegen": "write a module with typed functions of a package's operators, for editors and type checkers",
    },
    "models": {
        "import": "read a model of another system: report what is supported, import it, run it, profile it",
        "relay": "the same as import --run",
        "deploy": "write a model as C for another machine, with its kernels, weights, a runtime and a Makefile",
        "plan": "print what a training step keeps on each rank and communicates, on any number of ranks",
    },
    "this machine": {
        "env": "print versions, devices and dialects, and why a device or dialect is off",
        "demo": "train a small convolutional network on handwritten digits: eager, on the VM, and in bfloat16",
    },
}
"""The commands, as the help lists them."""
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}
EXAMPLES = """examples:
  python -m meta env
  python -m meta op softmax
  python -m meta op new my_op --package my_package
  python -m meta explain matmul "(64, 32) float32" "(32, 16) float32"
  python -m meta import model.onnx --run --size batch=8
  python -m meta deploy model.onnx --target aarch64-linux-gnu -o model/
"""

MODULES = {"import": "import_model", "torch": "torch_package"}
"""The modules of commands whose names are keywords of Python or packages."""

EXTRAS = {
    "sklearn": "demo", "matplotlib": "demo", "rich": "demo", "torch": "torch", "cuda": "cuda", "onnx": "onnx",
    "onnx_ir": "onnx",
}  # fmt: skip
"""The extra that installs a package, by the name it is imported by."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors about unknown options name near ones."""

    def parse_known_args(self, *args: Any, **kwargs: Any) -> Any:
        parsed, unknown = super().parse_known_args(*args, **kwargs)
        if unknown:  # here, not in the parser above, which has other options
            hints = [did_you_mean(each.partition("=")[0], self._option_string_actions) for each in unknown]
            self.error(" ".join([f"unrecognized arguments: {' '.join(unknown)};", *filter(None, hints)]).rstrip(";"))
        return parsed, unknown


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status. Prints a MetaError, or that an extra is missing, without a traceback;
    the help without a command."""
    parser = _Parser(
        prog="python -m meta", description="An operator registry framework on Apache TVM.", epilog=_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter, usage="python -m meta [-h] [--version] COMMAND ...",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"meta {__version__}")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", help=argparse.SUPPRESS, prog="python -m meta", required=True
    )
    arguments = list(sys.argv[1:] if argv is None else argv)
    selected = next((a for a in arguments if a in COMMANDS), None)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, description=text[0].upper() + text[1:] + ".")
        if name == selected:
            _module(name).configure(command)
    options = parser.parse_args(arguments or ["--help"])
    try:
        return _run(options)
    except MetaError as error:
        print(f"{styled('error:', 'red', sys.stderr)} {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # a reader such as `head` has what it wants
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _epilog() -> str:
    """The commands in groups, and examples, in 80 columns."""
    groups = (
        "\n".join([styled(f"{title}:", "bold"), *map(_line, rows, rows.values())]) for title, rows in GROUPS.items()
    )
    return "\n\n".join([*groups, EXAMPLES.rstrip()])


def _line(name: str, text: str) -> str:
    return textwrap.fill(text, 79, initial_indent=f"  {name:10}", subsequent_indent=" " * 12)


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
