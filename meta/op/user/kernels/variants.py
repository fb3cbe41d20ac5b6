"""Build variants of kernels in the layout of Hugging Face's kernels, and which of them runs here.

A variant is a folder whose name says what it was built for: the framework and its version, the backend and its version,
the architecture and the system, as in tvm-ffi01-cu128-x86_64-linux and torch212-cxx11-cpu-x86_64-linux; one in Python
is called torch-cpu, torch-cuda or torch-universal.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Final

from meta.errors import FileError
from meta.records import record

_BUILT: Final = re.compile(
    r"(?P<framework>tvm-ffi|torch-stable-abi|torch)(?P<version>\d{2,4})(-(?P<abi>cxx\d+))?"
    r"-(?P<backend>[a-z]+)(?P<backend_version>\d*)-(?P<arch>\w+)-(?P<system>[a-z]+)"
)
_PYTHON: Final = re.compile(r"(?P<framework>torch)-(?P<backend>[a-z]+)")
_ARCHITECTURES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_PREFERRED: Final = ("tvm-ffi", "torch-stable-abi", "torch")
Version = tuple[int, ...]


@record
class Variant:
    """What a folder was built for; "" and () for what it does not depend on."""

    folder: Path
    framework: str
    version: Version
    abi: str
    backend: str
    backend_version: Version
    arch: str
    system: str

    @property
    def rank(self) -> tuple[bool, int, Version, Version]:
        """By which the lowest is preferred: compiled ones, those without Python, the newest."""
        newest = tuple(-n for n in self.version), tuple(-n for n in self.backend_version)
        return (not self.arch, _PREFERRED.index(self.framework), *newest)


def choose(folder: Path, kind: str) -> Variant:
    """The variant of a folder that runs on a kind of device here. Raises FileError, with the reason of each refusal, if
    there is none."""
    base = folder / "build" if (folder / "build").is_dir() else folder
    try:
        entries = sorted(entry for entry in base.iterdir() if entry.is_dir())
    except OSError as error:
        raise FileError("load", f"{folder} cannot be read: {error}", "a folder of kernels") from error
    variants = [v for entry in (base, *entries) if (v := parsed(entry)) is not None]
    refusals = {variant: _refusal(variant, kind) for variant in variants}
    fitting = [variant for variant, refusal in refusals.items() if refusal is None]
    if fitting:
        return min(fitting, key=lambda variant: variant.rank)
    listed = "; ".join(f"{v.folder.name} is {why}" for v, why in list(refusals.items())[:8]) or "it has no variant"
    remedy = "build one for this system, or pass device=..."
    raise FileError("load", f"no variant in {folder} runs on {kind} here: {listed}", _here(kind), remedy)


def parsed(folder: Path) -> Variant | None:
    """The variant that a folder's name stands for, None for another name."""
    match = _BUILT.fullmatch(folder.name) or _PYTHON.fullmatch(folder.name)
    if match is None:
        return None
    facts = {name: text or "" for name, text in match.groupdict().items()}
    version, backend_version = facts.get("version", ""), facts.get("backend_version", "")
    return Variant(
        folder, facts["framework"], _numbers(version[:1], version[1:]), facts.get("abi", ""), facts["backend"],
        _numbers(backend_version[:-1], backend_version[-1:]), facts.get("arch", ""), facts.get("system", ""),
    )  # fmt: skip


def _numbers(*texts: str) -> Version:
    return tuple(int(text) for text in texts if text)


def _refusal(v: Variant, kind: str) -> str | None:
    """Why a variant does not run here, None if it does."""
    backends = {"cpu": ("cpu",), "cuda": ("cu", "cuda")}[kind]
    if v.backend not in (*backends, "universal"):
        return f"for {v.backend}"
    if v.arch and (v.arch, v.system) != (_architecture(), platform.system().lower()):
        return f"for {v.system} on {v.arch}"
    package = "apache-tvm-ffi" if v.framework == "tvm-ffi" else "torch"
    installed = _installed(package)
    if not installed:
        return f"for {package}, which is not installed"
    is_stable = v.framework == "torch-stable-abi"
    if v.version and (v.version > installed if is_stable else v.version != installed):
        return f"built for the ABI of {v.framework} {_text(v.version)}, and {_text(installed)} is installed"
    if v.abi == "cxx98":
        return "built for the ABI of C++ 98"
    if v.backend == "cu":
        newest = _cuda_version(v.framework)
        if v.backend_version[:1] != newest[:1] or v.backend_version > newest:
            return f"for CUDA {_text(v.backend_version)}, and this is {_text(newest) or 'no CUDA'}"
    return None


def _installed(package: str) -> Version:
    """The first two numbers of a package's version, () if it is not installed."""
    try:
        return _numbers(*re.findall(r"\d+", installed_version(package))[:2])
    except PackageNotFoundError:
        return ()


def _cuda_version(framework: str) -> Version:
    """The newest version of CUDA whose kernels run: torch's, or the driver's."""
    if framework != "tvm-ffi":
        from meta.backend.torch.bridge import cuda_version

        return _numbers(*cuda_version().split("."))
    from meta.backend.cuda import driver

    return driver.version() if driver.probe() is None else ()


def _architecture() -> str:
    machine = platform.machine()
    return _ARCHITECTURES.get(machine.lower(), machine)


def _here(kind: str) -> str:
    """What a variant has to be built for."""
    packages: Iterable[tuple[str, Version]] = ((n, _installed(n)) for n in ("apache-tvm-ffi", "torch"))
    versions = ", ".join(f"{name} {_text(number)}" for name, number in packages if number)
    return f"{kind} on {platform.system().lower()}, {_architecture()}, {versions}"


def _text(version: Version) -> str:
    return ".".join(map(str, version))
