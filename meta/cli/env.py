"""`python -m meta env`: versions, devices, dialects and kernel cache of this machine."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec

from meta import __version__, cache
from meta.cli.text import styled, wrapped
from meta.device import KINDS
from meta.errors import install_hint
from meta.op import plugins
from meta.op.dispatch import BUILT_IN, dialect, dialect_names

_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "numpy", "torch", "triton", "cuda-bindings", "nvidia-cudnn-frontend")
_EXTRAS = {"torch": "torch", "triton": "triton", "cuda-bindings": "cuda"}
"""The extra that installs a package."""


def configure(parser: argparse.ArgumentParser) -> None:
    """No options."""
    del parser


def run(options: argparse.Namespace) -> int:
    """Print versions and the state of each dialect."""
    del options
    print(f"meta {__version__}, Python {platform.python_version()}, {platform.machine()}")
    for name in _PACKAGES:
        print(_row(name, _version(name)))
    missing = {kind: reason for kind, reason in (("cuda", _cuda_refusal()),) if reason}
    print(styled("devices", "bold"))
    for kind in KINDS:
        print(_row(kind, f"off: {missing[kind]}" if kind in missing else "on"))
    print(styled("dialects", "bold"))
    for name in dialect_names():
        print(_row(name, _dialect_state(name, missing)))
    print(f"{styled('kernel cache', 'bold')}\n  {cache.describe()}")
    _print_plugins()
    return 0


def _row(name: str, state: str) -> str:
    text, word = wrapped(f"{name:24} {state}", 2, 25), state.partition(",")[0].partition(":")[0]
    style = {"on": "green", "off": "red"}.get(word)
    return text.replace(f" {word}", f" {styled(word, style)}", 1) if style else text


def _print_plugins() -> None:
    """The entry points of installed packages, if there are any."""
    entries = [each for group in (plugins.DIALECTS, plugins.OPERATORS) for each in plugins.load(group)]
    if entries:
        print(styled("plugins", "bold"))
    for each in entries:
        state = f"off: {each.failure}" if each.failure else "on"
        print(_row(each.name, f"{state} ({each.target} of {each.package}, {each.group})"))


def _cuda_refusal() -> str | None:
    from meta.backend.cuda.driver import probe

    return probe()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"not installed: {install_hint(_EXTRAS[name])}" if name in _EXTRAS else "not installed"


def _dialect_state(name: str, missing: Mapping[str, str]) -> str:
    if name in BUILT_IN and find_spec(f"meta.op.dialect.{name}") is None:
        return "off: not part of this version"
    entry = dialect(name)
    reason = entry.unavailable()
    devices = ", ".join(f"{d} (off)" if d in missing else d for d in sorted(entry.devices))
    return f"off: {reason}" if reason else f"on, plevel {entry.plevel}, for {devices}"
