"""Nests of arrays and plain values as named arrays and a JSON text that describes the nest."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from meta.dtype import ALL
from meta.eager.ndarray import NDArray, asarray
from meta.errors import ArgumentError, FileError
from meta.files.strict_json import parse_json
from meta.limits import MAX_DEPTH, MAX_DIGITS, MAX_NAME
from meta.tree import child_path, is_dict

_ALLOWED: Final = "arrays, numbers, strings, None, objects with state_dict(), and tuples, lists and dicts of them"
_CONTAINERS: Final = ("dict", "list", "tuple")


def compiled_from(value: Any) -> Any:
    """What a compiled program was made of, such as a training step, which has the state; other values as they are."""
    return getattr(value, "compiled_from", value)


def state_of(value: Any) -> Any:
    """The state of a model, an optimizer or the like: `state_dict()`, or what `named_state()` lists. None for values
    without these methods."""
    if isinstance(value, type):
        return None
    value = compiled_from(value)
    if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
        return value.state_dict()
    entries: Callable[[], Any] | None = getattr(value, "named_state", None)
    return _by_name(list(entries()), type(value).__name__) if callable(entries) else None


def _by_name(items: Sequence[tuple[str, Any]], owner: str) -> dict[str, Any]:
    out = dict(items)
    if len(out) < len(items):
        names = [name for name, _ in items]
        twice = next(name for name in names if names.count(name) > 1)
        raise ArgumentError("save", f"two arrays of {owner} are called '{twice}'", "distinct names",
                            "save its parts in a dict")  # fmt: skip
    return out


@dataclass(slots=True)
class Encoder:
    """Collects the arrays of a nest by name. An array that occurs twice is stored once."""

    arrays: dict[str, NDArray] = field(default_factory=dict[str, NDArray])
    _names: dict[int, str] = field(default_factory=dict[int, str])
    _held: list[Any] = field(default_factory=list[Any])

    def encode(self, value: Any, name: str = "", depth: int = 0) -> Any:
        """The JSON form of `value`. Raises ArgumentError, naming the place, for what cannot be saved."""
        if depth > MAX_DEPTH:
            raise _unsaved(name, f"nests deeper than {MAX_DEPTH}")
        state = state_of(value)
        if state is not None:
            return self.encode(state, name, depth + 1)
        value = _plain(value, name)
        if isinstance(value, NDArray):
            return {"array": self._add(value, name)}
        if isinstance(value, (str, bool, type(None))):
            return value
        if isinstance(value, int):
            if len(str(value) if abs(value) < 10 ** (MAX_DIGITS - 1) else "9" * (MAX_DIGITS + 1)) > MAX_DIGITS:
                raise _unsaved(name, f"is an int of more than {MAX_DIGITS} digits")
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, Mapping):
            return {"dict": self._items(cast("Mapping[Any, Any]", value), name, depth)}
        kind = "tuple" if isinstance(value, tuple) else "list"
        items = cast("Sequence[Any]", value)
        return {kind: [self.encode(item, child_path(name, i), depth + 1) for i, item in enumerate(items)]}

    def _items(self, value: Mapping[Any, Any], name: str, depth: int) -> list[Any]:
        for key in value:
            if not isinstance(key, (str, int)):
                raise _unsaved(name, f"has a key of class {type(key).__name__}", "strings and ints as keys")
        return [[key, self.encode(item, child_path(name, key), depth + 1)] for key, item in value.items()]

    def _add(self, array: NDArray, name: str) -> str:
        memory = array._data  # the same object in all arrays over the whole of a memory
        first_name = self._names.get(id(memory))
        if first_name is not None:
            return first_name
        name = name or "array"
        if len(name) > MAX_NAME:
            raise _unsaved(f"{name[:60]}...", f"has a name of {len(name)} characters", f"at most {MAX_NAME}")
        if name in self.arrays or name == "__metadata__":
            raise _unsaved(name, "is the name of two arrays" if name in self.arrays else "is reserved", "other keys")
        self.arrays[name] = array
        self._names[id(memory)] = name
        self._held.append(memory)  # so that no other one gets its id
        return name


def decode(text: str, arrays: Mapping[str, NDArray], path: str) -> Any:
    """The nest that a JSON text describes. Raises FileError for a text that `Encoder` does not write."""
    try:
        value = parse_json(text)
    except ValueError as error:
        raise FileError("load", f"the description in {path} is not valid JSON: {str(error)[:100]}") from error
    return _decoded(value, arrays, path, 0)


def is_flat(value: object) -> bool:
    """Whether a nest is a dict of arrays, as other programs write them, whose description says nothing new."""
    return is_dict(value) and list(value) == ["dict"] and all(item == {"array": key} for key, item in value["dict"])


def to_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _decoded(value: object, arrays: Mapping[str, NDArray], path: str, depth: int) -> Any:
    if isinstance(value, (str, bool, int, float, type(None))):
        return value
    items = cast("dict[str, Any]", value)
    if depth <= MAX_DEPTH and isinstance(value, dict) and len(items) == 1:
        ((kind, content),) = items.items()
        if kind == "array" and isinstance(content, str) and content in arrays:
            return arrays[content]
        if kind == "float" and content in ("nan", "inf", "-inf"):
            return float(content)
        if kind in _CONTAINERS and isinstance(content, list):
            return _container(kind, cast("list[Any]", content), arrays, path, depth)
    raise FileError("load", f"the description in {path} has {value!r:.80}", "a file that meta.save wrote")


def _container(kind: str, content: list[Any], arrays: Mapping[str, NDArray], path: str, depth: int) -> Any:
    if kind != "dict":
        items = [_decoded(item, arrays, path, depth + 1) for item in content]
        return tuple(items) if kind == "tuple" else items
    pairs: list[Any] = [pair if isinstance(pair, list) else [] for pair in content]
    keys: list[Any] = [pair[0] if len(pair) == 2 else None for pair in pairs]
    if not all(type(key) in (str, int) for key in keys) or len(set(keys)) < len(keys):
        raise FileError("load", f"the description in {path} has the keys {keys!r:.80}", "distinct strings and ints")
    return {pair[0]: _decoded(pair[1], arrays, path, depth + 1) for pair in pairs}


def _plain(value: Any, name: str) -> Any:
    """`value`, or the array or number that it is in another library. Raises ArgumentError for what cannot be saved."""
    import numpy as np

    if isinstance(value, np.ndarray):
        dtype = str(cast("Any", value).dtype)
        if dtype not in ALL:
            raise _unsaved(name, f"is a NumPy array of dtype {dtype}", f"one of {', '.join(ALL)}")
        return asarray(value)
    if isinstance(value, (np.bool_, np.integer, np.floating)):
        return cast("Any", value).item()
    if isinstance(value, (NDArray, str, bool, int, float, type(None), tuple, list, Mapping)):
        return value  # pyright: ignore[reportUnknownVariableType]
    remedy = "wrap it: meta.from_dlpack(...)" if hasattr(value, "__dlpack__") else ""
    if compiled_from(value) is not value:
        remedy = "save the model and the optimizer that the compiled function uses"
    raise _unsaved(name, f"is of class {type(value).__module__}.{type(value).__name__}", _ALLOWED, remedy)


def _unsaved(name: str, problem: str, expected: str = _ALLOWED, remedy: str = "") -> ArgumentError:
    return ArgumentError("save", f"'{name}' {problem}" if name else f"the value {problem}", expected, remedy)
