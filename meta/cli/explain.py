"""`python -m meta explain matmul "(64, 784) float32" "(784, 256) float32"`."""

from __future__ import annotations

import argparse
import ast
from typing import Any

from meta.device import device
from meta.dtype import canonical
from meta.eager.explain import explain
from meta.errors import ArgumentError
from meta.ir.type import tensor_type
from meta.op.registry import get
from meta.tree import is_tuple


def configure(parser: argparse.ArgumentParser) -> None:
    """Define the options."""
    parser.add_argument("op", help="operator name")
    parser.add_argument(
        "args",
        nargs="*",
        help='arguments in order, or as NAME=VALUE: "(2, 3) float32" for a tensor, a Python literal otherwise',
    )
    parser.add_argument("--device", default="cpu", help="device of the tensors (default: cpu)")


def run(options: argparse.Namespace) -> int:
    """Print every candidate with its reason."""
    schema = get(options.op).schema
    values = [_parse_argument(text, options.device) for text in options.args if not _is_named(text)]
    for arg, value in zip(schema.args, values, strict=False):
        if arg.is_tensor and is_tuple(value) and all(type(size) is int for size in value):
            raise ArgumentError(
                "explain", f"'{arg.name}' is {value}", "a shape and a dtype", f'write "{value} float32"'
            )
    named = [text.partition("=") for text in options.args if _is_named(text)]
    print(explain(options.op, *values, **{name: _parse_argument(text, options.device) for name, _, text in named}))
    return 0


def _is_named(text: str) -> bool:
    """Whether an argument is `axis=1`."""
    return text.partition("=")[0].isidentifier() and "=" in text


def _parse_argument(text: str, device_name: str) -> Any:
    """A TensorType for "(2, 3) float32", otherwise a Python literal (read by literal_eval, which executes nothing)."""
    shape, _, dtype = text.rpartition(") ")
    try:
        if shape:
            return tensor_type(tuple(ast.literal_eval(shape + ")")), canonical(dtype), device(device_name))
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise ArgumentError("explain", f"cannot read {text!r}", '"(2, 3) float32", or a Python literal') from None
