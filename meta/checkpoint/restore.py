"""Writing what was loaded into the objects of a nest."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from meta.checkpoint.named_arrays import compiled_from, state_of
from meta.eager.ndarray import NDArray
from meta.errors import FileError
from meta.model.model import Model
from meta.modes import no_grad
from meta.tree import child_path


@dataclass(slots=True)
class Restorer:
    """Checks a nest against what a file holds, and writes when everything has been checked.

    path: for errors.  strict: entries that only one side has are errors; else they are left as they are."""

    path: str
    strict: bool
    writes: list[Callable[[], Any]]

    def plan(self, target: Any, saved: Any, name: str = "") -> Any:
        """The nest of `target` with the plain values of the file. Arrays and objects are written later, by `write`.

        Raises FileError where the file does not fit."""
        if isinstance(target, NDArray):
            return self._array(target, saved, name)
        state = state_of(target)
        if state is not None:
            return self._object(target, state, saved, name)
        if isinstance(target, dict):
            items = cast("dict[Any, Any]", target)
            self._check_kind(saved, dict, name)
            self._check_names(list(items), saved, name)
            return {k: self.plan(v, saved[k], child_path(name, k)) if k in saved else v for k, v in items.items()}
        if isinstance(target, (tuple, list)):
            nested = cast("Sequence[Any]", target)
            self._check_kind(saved, (tuple, list), name)
            if len(saved) != len(nested):
                raise self._misfit(name, f"has {len(saved)} items", f"{len(nested)}")
            pairs = enumerate(zip(nested, saved, strict=True))
            items_of = [self.plan(v, s, child_path(name, i)) for i, (v, s) in pairs]
            return tuple(items_of) if isinstance(target, tuple) else items_of
        return saved

    def write(self) -> None:
        """Write what was planned."""
        for write in self.writes:
            write()

    def _array(self, target: NDArray, saved: Any, name: str) -> NDArray:
        self._check_type(target, saved, name)

        def write() -> None:
            with no_grad():
                target.update(saved.to(device=target.device))

        self.writes.append(write)
        return target

    def _object(self, target: Any, state: Mapping[str, Any], saved: Any, name: str) -> Any:
        self._check_kind(saved, dict, name)
        owner = compiled_from(target)
        load: Any = getattr(owner, "load_state_dict", None)
        fixed = isinstance(owner, Model) or not callable(load)
        takes_parts = not fixed and "strict" in inspect.signature(load).parameters
        if fixed or takes_parts:
            self._check_names(list(state), saved, name)
        for key, value in state.items():
            if isinstance(value, NDArray) and key in saved:
                self._check_type(value, saved[key], child_path(name, key))
        if fixed:  # objects whose names and types are known have been checked in full, so they are written last
            for key, value in state.items():
                if key in saved:
                    self._array(value, saved[key], child_path(name, key))
        else:
            options = {"strict": False} if takes_parts and not self.strict else {}
            self.writes.insert(0, lambda: self._load(owner, saved, name, options))
        return target

    def _load(self, target: Any, saved: Mapping[str, Any], name: str, options: Mapping[str, bool]) -> None:
        try:
            target.load_state_dict(saved, **options)
        except (KeyError, TypeError, ValueError) as error:
            problem = getattr(error, "problem", None) or f"{type(error).__name__}: {error}"
            raise self._misfit(name, f"does not fit {type(target).__name__}: {problem}"[:500], "its state") from error

    def _check_kind(self, saved: object, kind: type | tuple[type, ...], name: str) -> None:
        if not isinstance(saved, kind):
            expected = "a dict" if kind is dict else "a tuple or list"
            raise self._misfit(name, f"is {_described(saved)}", expected)

    def _check_names(self, names: list[Any], saved: Mapping[Any, Any], place: str) -> None:
        missing = [name for name in names if name not in saved]
        unknown = [name for name in saved if name not in set(names)]
        if not self.strict and len(missing) < max(len(names), 1):
            return
        if missing or unknown:
            parts = [f"lacks {_listed(missing)}"] * bool(missing) + [f"has {_listed(unknown)} too"] * bool(unknown)
            remedy = "load the parts that match: meta.load(..., strict=False)" if self.strict else ""
            raise self._misfit(place, " and ".join(parts), _listed(names), remedy)

    def _check_type(self, target: NDArray, saved: object, name: str) -> None:
        fits = isinstance(saved, NDArray) and (saved.shape, saved.dtype) == (target.shape, target.dtype)
        if not fits:
            expected = f"{target.dtype} of shape {target.shape}, as it is now"
            raise self._misfit(name, f"is {_described(saved)}", expected)

    def _misfit(self, name: str, problem: str, expected: str, remedy: str = "") -> FileError:
        place = f"'{name}' in {self.path}" if name else self.path
        return FileError("load", f"{place} {problem}", expected, remedy)


def _described(value: object) -> str:
    return f"{value.dtype} of shape {value.shape}" if isinstance(value, NDArray) else f"a {type(value).__name__}"


def _listed(names: Sequence[Any]) -> str:
    shown = 5
    listed = ", ".join(f"'{name!s:.60}'" for name in names[:shown])
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return (listed + more) or "nothing"
