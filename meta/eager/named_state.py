"""Saved states by name: what fits the arrays of a model, an optimizer or a program."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from meta.eager.ndarray import NDArray, asarray
from meta.errors import ArgumentError, did_you_mean
from meta.modes import modes

_SHOWN: Final = 6
"""Most names that an error lists."""

_FROM_TORCH: Final = {"weight": "w", "bias": "b"}
"""Names of layers' parameters in torch -> here."""


class Unmatched(NamedTuple):
    """The names that only the model has (`missing`), and those that only the state has (`unknown`)."""

    missing: list[str]
    unknown: list[str]

    @classmethod
    def of(cls, arrays: Mapping[str, Any], state: Mapping[str, Any]) -> Unmatched:
        """The unmatched names of `arrays` and of a state, each in its own order."""
        return cls([name for name in arrays if name not in state], [name for name in state if name not in arrays])


class StateArrays(dict[str, NDArray]):
    """Arrays by name, whose KeyError has the name here of `weight` and `bias` in torch, or near names."""

    def __missing__(self, name: str) -> NDArray:
        path, _, last = str(name).rpartition(".")
        own = f"{path}.{_FROM_TORCH.get(last, last)}".removeprefix(".")
        ends = [each for each in self if f".{each}".endswith(f".{own}")]
        hint = f'write state["{ends[0]}"]' if len(ends) == 1 else did_you_mean(own, self)
        raise KeyError("; ".join(filter(None, (f"there is no {name!r}", hint))))


def without_gradients(named: Iterable[tuple[str, NDArray]]) -> StateArrays:
    """Arrays by name, over the same memory, that require no gradients. In a trace, the arrays themselves."""
    return StateArrays((name, x if modes.trace is not None else x.detach()) for name, x in named)


def fitting_state(
    arrays: Mapping[str, NDArray], state: Mapping[str, Any], owner: str, strict: bool = True
) -> tuple[dict[str, NDArray], Unmatched]:
    """The values of a saved state for `arrays`, on their devices, and the names that only one side has. Floating
    0-d values for a 0-d float64 array may have another dtype.

    owner: for errors, such as "the model".  strict: with False, differing names are left out.

    Raises:
        ArgumentError: names (with `strict`), shapes or dtypes differ.
    """
    if not isinstance(state, Mapping):
        is_path = isinstance(state, (str, os.PathLike))
        remedy = f"write meta.load({os.fspath(state)!r}, into=...) for {owner} in a file" if is_path else ""
        problem = f"the state is {type(state).__name__}"
        raise ArgumentError("load_state_dict", problem, "a mapping of names to arrays", remedy)
    unmatched = Unmatched.of(arrays, state)
    if strict and any(unmatched):
        refuse_names("load_state_dict", unmatched, arrays, owner)
    loaded = {name: asarray(state[name], device=x.device) for name, x in arrays.items() if name in state}
    for name, value in loaded.items():
        x = arrays[name]
        if x.shape == value.shape == () and x.dtype == "float64":
            loaded[name] = value = value.cast("float64")
        if value.type is not x.type:
            raise ArgumentError("load_state_dict", f"'{name}' is {value.type!r}", f"{x.type!r}, as in {owner}")
    return loaded, unmatched


def refuse_names(
    where: str,
    unmatched: Unmatched,
    expected: Mapping[str, Any],
    owner: str,
    remedy: str = "strict=False loads what both have",
) -> None:
    """Raise ArgumentError for names that only one side has. expected: the names that fit."""
    sides = (("missing", unmatched.missing), ("unknown", unmatched.unknown))
    parts = [f"{side}: {_listed(names)}" for side, names in sides if names]
    hint = did_you_mean(unmatched.unknown[0], expected) if unmatched.unknown else ""
    raise ArgumentError(where, ", ".join(parts), f"the names of {owner}", f"{hint} {remedy}".strip())


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{names[:_SHOWN]}{more}"
