"""`read`: a RelayProgram from any source of a Relay program."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from meta.errors import ArgumentError
from meta.frontend.relay.errors import RelayError
from meta.limits import MAX_SOURCE

if TYPE_CHECKING:
    from meta.frontend.relay.ast import RelayProgram


@runtime_checkable
class HasText(Protocol):
    """A module of another system that prints itself as Relay text."""

    def astext(self) -> str: ...


Source: TypeAlias = "str | bytes | os.PathLike[str] | HasText"


def read(source: Source) -> RelayProgram:
    """The program that `source` holds.

    source: Relay text, Relay JSON (of `tvm.ir.save_json`), a path to a file of either, or an object with `astext()`.
    JSON is recognised by its first character. Raises RelayError (RelaySyntaxError with line and column for mistakes
    in text), and ArgumentError for other objects. Nothing in a source is executed."""
    name = ""
    value: Any = source
    if isinstance(value, os.PathLike) or _is_path(value):
        name, value = _contents(Path(value))  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, HasText):
        value = _printed(value)
    if isinstance(value, bytes):
        value = _decoded(value, name)
    if not isinstance(value, str):
        expected = "Relay text, Relay JSON, a path to either, or an object with astext()"
        raise ArgumentError("relay", f"source is {type(source).__name__}", expected)
    if value.lstrip("\ufeff \t\r\n").startswith("{"):
        from meta.frontend.relay.json.node_values import parse as parse_json

        return parse_json(value, name)

    from meta.frontend.relay.text.reader import parse as parse_text

    return parse_text(value.removeprefix("\ufeff"), name)


def _is_path(source: object) -> bool:
    """Whether a string names a file: programs have brackets and several lines, file names do not."""
    if not isinstance(source, str) or not source.strip() or "\n" in source or len(source) > 4096:
        return False
    if source.lstrip().startswith(("{", "#[", "v0.")) or "\0" in source:
        return False
    if source.endswith((".relay", ".json", ".txt", ".rly")) or os.path.isfile(source):
        return True
    return not any(c in source for c in "(%@{")


def _contents(path: Path) -> tuple[str, bytes]:
    try:
        if path.stat().st_size > MAX_SOURCE:
            raise RelayError("relay", f"{path} has {path.stat().st_size} bytes", f"at most {MAX_SOURCE}")
        return path.name, path.read_bytes()
    except RelayError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RelayError("relay", f"cannot read {path}: {reason}", "a file of Relay text or JSON") from error


def _printed(source: Any) -> Any:
    """The text, with constants if the object can print them."""
    try:
        return source.astext(show_meta_data=True)
    except TypeError:
        return source.astext()


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"{name or 'the source'} is not text: byte {error.start} is not UTF-8"
        raise RelayError("relay", problem, "Relay text or JSON; parameters are a separate file") from error
