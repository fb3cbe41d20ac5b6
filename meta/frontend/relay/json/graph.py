"""The node graph of Relay-era `tvm.ir.save_json`: nodes that refer to each other by number."""

from __future__ import annotations

import base64
import binascii
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from meta.frontend.relay.errors import RelayError
from meta.frontend.relay.json.attribute_fields import holds_object
from meta.frontend.relay.ndarray_format import read_array
from meta.limits import MAX_SOURCE

# Fields, other than attributes, whose numbers never refer to a node.
_LITERALS = frozenset(
    {"value", "dtype", "index", "tag", "kind", "complete", "line", "column", "end_line", "end_column"}
)


class NodeGraph:
    """Checked access to nodes, strings and arrays. Every failure is a RelayError that names the node."""

    def __init__(self, text: str, name: str = "", line: int = 1) -> None:
        """line: of the start of `text` in the source, for errors."""
        self.name = name or "JSON"
        data = self._object(text, line)
        nodes, arrays = data.get("nodes"), data.get("b64ndarrays", [])
        if not isinstance(nodes, list) or not isinstance(arrays, list):
            raise self.error('no list "nodes"', "a graph of tvm.ir.save_json")
        self.nodes = cast("list[Any]", nodes)
        self._arrays = cast("list[Any]", arrays)
        self._decoded: dict[int, tuple[NDArray[Any], str]] = {}
        self._orphans: bytearray | None = None
        root = data.get("root")
        if not isinstance(root, int) or not 0 < root < len(self.nodes):
            raise self.error(f'"root" is {_shown(root)}', f"the number of one of {len(self.nodes)} nodes")
        self.root = root

    def _object(self, text: str, line: int) -> dict[str, Any]:
        if len(text) > MAX_SOURCE:
            raise self.error(f"{len(text)} characters", f"at most {MAX_SOURCE}")
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise self.error(f"line {error.lineno + line - 1}, column {error.colno}: {error.msg}", "JSON") from error
        except (ValueError, RecursionError) as error:
            raise self.error(f"{error}"[:200], "JSON of moderate depth, with moderate numbers") from error
        if not isinstance(data, dict):
            raise self.error("the JSON is not an object", "a graph of tvm.ir.save_json")
        return cast("dict[str, Any]", data)

    def error(self, problem: str, expected: str = "", node: int | None = None) -> RelayError:
        place = self.name if node is None else f"{self.name}, node {node}"
        return RelayError("relay", f"{place}: {problem[:300]}", expected)

    def kind(self, index: int) -> str:
        """Relay's name of the class of a node; "" for the null node."""
        node = self.nodes[index]
        kind: Any = cast("dict[str, Any]", node).get("type_key") if isinstance(node, dict) else None
        if not isinstance(kind, str):
            raise self.error("a node without a type_key", node=index)
        return kind

    def fields(self, index: int) -> Mapping[str, str]:
        """The fields of a node, all of them strings."""
        fields = self.nodes[index].get("attrs", {})
        if not isinstance(fields, dict):
            raise self.error('"attrs" is not an object', node=index)
        return cast("Mapping[str, str]", fields)

    def field(self, index: int, name: str) -> str:
        value = self.fields(index).get(name)
        if not isinstance(value, str):
            raise self.error(f"a {self.kind(index)} without {name}", node=index)
        return value

    def reference(self, index: int, name: str) -> int:
        """The number of the node in a field; 0 for null and for a missing field."""
        value = self.fields(index).get(name, "0")
        number = self.as_reference(value)
        if number is None:
            raise self.error(f"{name} is {_shown(value)}", f"the number of one of {len(self.nodes)} nodes", index)
        return number

    def as_reference(self, value: object) -> int | None:
        """The number of a node in the string `value`; None for other values."""
        if not isinstance(value, str) or len(value) > 12 or not value.isascii() or not value.isdigit():
            return None
        number = int(value)
        return number if number < len(self.nodes) else None

    def integer(self, index: int, name: str) -> int:
        value = self.field(index, name)
        if len(value) > 20 or not value.removeprefix("-").isdecimal():
            raise self.error(f"{name} is {value[:40]!r}", "an integer", index)
        return int(value)

    def items(self, index: int) -> Sequence[int]:
        """The nodes of an Array, or of a Map without string keys, in which keys and values alternate."""
        data = self.nodes[index].get("data", [])
        if not isinstance(data, list):
            raise self.error('"data" is not a list', node=index)
        for each in cast("list[Any]", data):
            if type(each) is not int or not 0 <= each < len(self.nodes):
                raise self.error(f"a reference to node {_shown(each)}", f"one of {len(self.nodes)} nodes", index)
        return cast("list[int]", data)

    def keys(self, index: int) -> list[str] | None:
        """The keys of a Map with string keys; None for other Maps."""
        keys: Any = self.nodes[index].get("keys")
        if keys is None:
            return None
        if not isinstance(keys, list) or not all(isinstance(each, str) for each in cast("list[Any]", keys)):
            raise self.error('"keys" are not strings', node=index)
        return cast("list[str]", keys)

    def string(self, index: int) -> str | None:
        """The text of a string node or an operator; None for other nodes."""
        node = self.nodes[index]
        if self.kind(index) not in ("runtime.String", "Op", "relay.Op", "StringImm", "tir.StringImm", "SourceName"):
            return None
        text: Any = node.get("repr_str", node.get("global_key", ""))
        if "repr_b64" in node:
            text = self._from_base64(node["repr_b64"], index).decode("utf-8", "backslashreplace")
        elif "value" in self.fields(index):
            text = self.field(index, "value")
        if not isinstance(text, str):
            raise self.error("a string node without text", node=index)
        return text

    def text(self, index: int, name: str) -> str:
        """The text in a field, which holds it or the number of a string node."""
        value = self.field(index, name)
        number = self.as_reference(value)
        written = self.string(number) if number else None
        return value if written is None else written

    def array(self, index: int, number: int) -> tuple[NDArray[Any], str]:
        """Array `number`, and Relay's name of its dtype."""
        if number not in self._decoded:
            if not 0 <= number < len(self._arrays):
                raise self.error(f"array {number}", f"one of {len(self._arrays)} arrays", index)
            data = self._from_base64(self._arrays[number], index)
            values, dtype, left = read_array(io.BytesIO(data), len(data), f"{self.name}, array {number}")
            if left:
                raise self.error(f"{left} bytes after array {number}", node=index)
            self._decoded[number] = np.require(values, requirements="C"), dtype
        return self._decoded[number]

    def _from_base64(self, text: Any, index: int) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except (TypeError, ValueError, binascii.Error) as error:
            raise self.error(f"invalid base64: {error}", node=index) from error

    def is_orphan(self, index: int) -> bool:
        """Whether no field certainly refers to a node; an ambiguous field with its number is then a reference."""
        if self._orphans is None:
            self._orphans = bytearray(b"\1") * len(self.nodes)
            for each in range(len(self.nodes)):
                for number in self._known_references(each):
                    self._orphans[number] = 0
            self._orphans[self.root] = 0
        return bool(self._orphans[index])

    def _known_references(self, index: int) -> Iterator[int]:
        kind = self.kind(index)
        yield from self.items(index)
        is_attrs = "attrs." in kind
        for name, value in self.fields(index).items():
            if kind == "relay.Constant" and name == "data":
                continue
            if holds_object(kind, name) if is_attrs else name not in _LITERALS:
                number = self.as_reference(value)
                if number is not None:
                    yield number


def _shown(value: object) -> str:
    """A short form of a JSON value. Lists are not printed: they may nest too deep."""
    return repr(value)[:40] if isinstance(value, (str, int, float)) else type(value).__name__
