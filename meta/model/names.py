"""Names of the arrays of a model: those that a state lacks, and those in torch, where `w` of a layer is `weight`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from meta.eager.ndarray import NDArray


class NamedArrays(Protocol):
    """A model as its names see it: arrays and sub-models, and what torch calls them (see Model)."""

    _torch_names: ClassVar[Mapping[str, str]]
    _torch_unused: ClassVar[tuple[str, ...]]
    _torch_vectors: ClassVar[tuple[str, ...]]

    def children(self) -> Iterator[tuple[str, NamedArrays]]: ...

    def _direct_arrays(self) -> Iterator[tuple[str, NDArray]]: ...


class Alias:
    """Another name of an attribute, under which torch's checkpoints have it: `weight = Alias("w")`.

    target: the attribute, or the path to one of a sub-model (`project.w`)."""

    def __init__(self, target: str) -> None:
        self.target = target

    def __set_name__(self, owner: type[NamedArrays], name: str) -> None:
        owner._torch_names = {**owner._torch_names, self.target: name}

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else attrgetter(self.target)(instance)

    def __set__(self, instance: object, value: object) -> None:
        path, _, last = self.target.rpartition(".")
        setattr(attrgetter(path)(instance) if path else instance, last, value)


def torch_arrays(model: NamedArrays) -> dict[str, NDArray]:
    """The arrays of a model by their names in torch; an array that two sub-models share has both names."""
    return {theirs: array for _, theirs, array in _named(model)}


def unused_names(model: NamedArrays) -> set[str]:
    """Names of torch's entries that this model has no use for, such as counters of batches."""
    return {_joined(prefix, name) for prefix, each in _prefixes(model) for name in each._torch_unused}


def torch_vectors(model: NamedArrays) -> set[int]:
    """The ids of arrays that are vectors in torch."""
    models = [each for _, each in _prefixes(model)]
    return {id(x) for each in models for name, x in each._direct_arrays() if name in each._torch_vectors}


def _named(model: NamedArrays) -> Iterator[tuple[str, str, NDArray]]:
    """Every array with its path here and its path in torch."""
    table = model._torch_names
    for name, array in model._direct_arrays():
        yield name, _translated(name, table), array
    for child_name, child in model.children():
        prefix = _translated(child_name, table)
        for inner, theirs, array in _named(child):
            path = f"{child_name}.{inner}"
            yield path, table.get(path) or _joined(prefix, theirs), array


def _prefixes(model: NamedArrays) -> Iterator[tuple[str, NamedArrays]]:
    """The model and its sub-models by their names in torch."""
    yield "", model
    for name, child in model.children():
        prefix = _translated(name, model._torch_names)
        yield from ((_joined(prefix, inner), each) for inner, each in _prefixes(child))


def _translated(path: str, table: Mapping[str, str]) -> str:
    """`path` with its longest head that the table has replaced."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        head = ".".join(parts[:count])
        if head in table:
            return _joined(table[head], ".".join(parts[count:]))
    return path


def _joined(*parts: str) -> str:
    return ".".join(filter(None, parts))
