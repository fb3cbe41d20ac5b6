"""Kernels from folders in the layout of Hugging Face's kernels.

**Trust.** A kernel is code: whoever wrote its files can run code as you. A folder is therefore loaded only if the
caller trusts it, by the digest of its files or altogether, like a saved program (`meta.vm.load`). The files are read
once: what was verified is written to a private folder and loaded from there.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final, cast

from meta.device import KINDS
from meta.errors import ArgumentError, FileError, raised
from meta.files.strict_json import parse_json
from meta.locks import new_lock
from meta.op import plugins
from meta.op.user.kernels import variants
from meta.op.user.kernels.library import KernelLibrary, opened
from meta.op.user.kernels.variants import Variant

Trust = bool | str | tuple[str, ...]
_HEX: Final = re.compile(r"[0-9a-f]{64}")
_LIBRARIES: Final = (".so", ".dylib", ".dll")
_METADATA: Final = "metadata.json"
_lock = new_lock("kernel libraries")
_loaded: dict[str, KernelLibrary] = {}
"""Libraries by digest: a package is imported once in a process."""
_folders: list[tempfile.TemporaryDirectory[str]] = []
"""Where imported packages are, until the process ends."""


def load(
    folder: str | Path, version: int | None = None, *, device: str | None = None, trust: Trust = False
) -> KernelLibrary:
    """The kernels of a folder that has a build variant for this system.

        hub = meta.kernels.load("kernels/activation", version=1, trust="3f0a...")

    folder: a folder with variants, with `build` around them, or one variant. Nothing is downloaded: a name such as
        "kernels-community/activation" is fetched by `huggingface_hub.snapshot_download`, which returns a folder.
    version: the version that the variant's metadata must have.  device: "cpu" or "cuda", by default "cuda" where it is
        available.
    trust: a kernel runs as part of this process, so it is loaded only if you trust whoever built it: the SHA-256 that
        an error without it names, or a tuple of several for the variants of several systems; True takes any files.

    Variants for tvm-ffi are preferred, whose functions `from_ffi` registers; the functions of variants for torch are
    for `from_torch`. Files that differ from the digests in the metadata are refused.

    Raises FileError without a variant for this system, for another version, for files that are not trusted or differ
    from their digests, and for code that does not load; ArgumentError for arguments of a wrong kind."""
    if not isinstance(trust, bool) and not all(isinstance(t, str) and _HEX.fullmatch(t) for t in _pins(trust)):
        raise ArgumentError("load", f"trust is {trust!r:.80}", "False, True, or the SHA-256 of the kernels in hex")
    if device not in (None, *KINDS):
        raise ArgumentError("load", f"device is {device!r:.80}", " or ".join(map(repr, KINDS)))
    path = Path(folder)
    if not path.is_dir():
        remedy = "download it first: huggingface_hub.snapshot_download(...) returns its folder"
        raise FileError("load", f"there is no folder {str(folder)!r:.200}", "a folder of kernels", remedy)
    variant = variants.choose(path, device or _default_kind())
    files = _contents(variant.folder)
    metadata = _metadata(files, variant)
    number = metadata.get("version")
    if version is not None and number != version:
        raise FileError("load", f"{variant.folder} has version {number}", f"version {version}")
    digest = _digest(files)
    _check_trust(variant, digest, trust)
    for group in (plugins.DIALECTS, plugins.OPERATORS):
        plugins.load(group)  # outside of the lock, which a plugin that loads kernels in another thread may wait for
    with _lock:
        if digest not in _loaded:
            name = str(metadata.get("name") or path.name)
            functions = _functions(variant, files, digest)
            _loaded[digest] = KernelLibrary(name, variant.folder.name, number, digest, functions)
        return _loaded[digest]


def _pins(trust: object) -> tuple[object, ...]:
    return cast("tuple[object, ...]", trust) if isinstance(trust, tuple) else (trust,)


def _default_kind() -> str:
    from meta.backend.tvm.devices import is_available

    return "cuda" if is_available("cuda") else "cpu"


def _contents(folder: Path) -> dict[str, bytes]:
    """The files of a variant by path, without those that Python keeps beside sources."""
    try:
        paths = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
        return {path.as_posix(): (folder / path).read_bytes() for path in paths if "__pycache__" not in path.parts}
    except OSError as error:
        raise FileError("load", f"{folder} cannot be read: {error}", "a folder of kernels") from error


def _metadata(files: Mapping[str, bytes], variant: Variant) -> dict[str, Any]:
    """The metadata of a variant, {} without a file of it. Raises FileError where files differ from its digests."""
    if _METADATA not in files:
        return {}
    try:
        metadata = parse_json(files[_METADATA].decode())
        listed: dict[str, str] = dict(metadata.get("digest", {}).get("files", {}))
        expected = {name: base64.b64decode(text) for name, text in listed.items()}
    except (AttributeError, TypeError, ValueError) as error:
        problem = f"{variant.folder / _METADATA} is malformed: {error}"[:300]
        raise FileError("load", problem, "metadata of kernels") from error
    present = {name for name in files if not name.startswith(_METADATA)}
    for name in sorted(expected.keys() | (present if expected else set())):
        if name not in expected or name not in files or hashlib.sha256(files[name]).digest() != expected[name]:
            what = "differs from its digest in the metadata" if name in expected else "is not listed in the metadata"
            raise FileError("load", f"{variant.folder / name} {what}", "the published files", "get them again")
    return metadata


def _digest(files: Mapping[str, bytes]) -> str:
    lines = [f"{hashlib.sha256(data).hexdigest()} {name}\n" for name, data in sorted(files.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _check_trust(variant: Variant, digest: str, trust: Trust) -> None:
    if trust is True or any(hmac.compare_digest(digest, str(pin)) for pin in _pins(trust)):
        return
    if trust:
        listed = ", ".join(map(str, _pins(trust)))
        raise FileError("load", f"{variant.folder} has the SHA-256 {digest}", listed, "get the kernels that were meant")
    raise FileError(
        "load", f"{variant.folder} holds code, with the SHA-256 {digest}", "kernels that you trust",
        f'if you trust whoever built them as you trust a program that you run, pass trust="{digest}"',
    )  # fmt: skip


def _functions(variant: Variant, files: Mapping[str, bytes], digest: str) -> Mapping[str, Callable[..., Any]]:
    """The functions of a variant, which runs code as it loads."""
    if variant.framework != "tvm-ffi":
        return _imported(variant, files, digest)
    libraries = {name: data for name, data in files.items() if name.endswith(_LIBRARIES)}
    if not libraries:
        raise FileError("load", f"{variant.folder} has no shared library", f"a file that ends in {_LIBRARIES[0]}")
    functions: dict[str, Callable[..., Any]] = {}
    for name, data in libraries.items():
        functions |= opened(data, str(variant.folder / name), digest)
    return functions


def _imported(variant: Variant, files: Mapping[str, bytes], digest: str) -> dict[str, Callable[..., Any]]:
    """The public functions of a package of Python, imported from a private folder."""
    start = next((n for n in ("__init__.py", *sorted(files)) if n in files and n.endswith("__init__.py")), None)
    if start is None:
        raise FileError("load", f"{variant.folder} has no __init__.py", "a package of kernels")
    _folders.append(tempfile.TemporaryDirectory(prefix="meta-kernels-"))
    for name, data in files.items():
        target = Path(_folders[-1].name, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    module_name = f"meta_kernels_{digest[:16]}"
    spec = spec_from_file_location(module_name, Path(_folders[-1].name, start))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[module_name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    # Importing the package runs its code, which may raise anything.
    except Exception as error:
        del sys.modules[module_name]
        raise raised(FileError, "load", f"the package in {variant.folder}", error) from error
    names: list[str] = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    values = {name: getattr(module, name) for name in names}
    return {name: value for name, value in values.items() if callable(value)}
