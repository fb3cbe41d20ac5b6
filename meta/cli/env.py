"""`python -m meta env`."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec

from meta import __version__
from meta.op.dispatch import DIALECTS, dialect

_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "numpy", "torch", "nvidia-cudnn-frontend")


def configure(parser: argparse.ArgumentParser) -> None:
    """No options."""
    del parser


def run(options: argparse.Namespace) -> int:
    """Print versions and the state of each dialect."""
    del options
    print(f"meta {__version__}, Python {platform.python_version()}, {platform.machine()}")
    for name in _PACKAGES:
        print(f"  {name:24} {_version(name)}")
    absent = {kind: why for kind, why in (("cuda", _cuda_refusal()),) if why}
    print("devices")
    for kind in ("cpu", "cuda"):
        print(f"  {kind:24} {f'off: {absent[kind]}' if kind in absent else 'on'}")
    print("dialects")
    for name in DIALECTS:
        print(f"  {name:24} {_state(name, absent)}")
    return 0


def _cuda_refusal() -> str | None:
    from meta.op.dialect.tvm._driver import probe

    return probe()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _state(name: str, absent: Mapping[str, str]) -> str:
    if find_spec(f"meta.op.dialect.{name}") is None:
        return "off: not part of this version"
    found = dialect(name)
    off = found.unavailable()
    where = ", ".join(f"{d} (off)" if d in absent else d for d in sorted(found.devices))
    return f"off: {off}" if off else f"on, plevel {found.plevel}, for {where}"
