"""Models of other models: in sequence, in lists and in dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from meta import tracing
from meta._generated.methods import Tensor
from meta.errors import ArgumentError, PositionError
from meta.model.inputs import refuse_torch
from meta.model.model import Model

Layer = Callable[[Any], Any]


class Sequential(Model):
    """Applies layers (or functions) one after the other: `Sequential(a, b)`, or with names `Sequential({"first": a})`.

    `s[i]` is a layer, by position or name, `s[i:j]` a Sequential of the same layers. Raises PositionError for positions
    out of range."""

    _torch_names = {"layers": ""}  # noqa: RUF012  # names in torch are positions

    def build(self, *layers: Layer | Mapping[str, Layer]) -> None:
        self.layers: list[Any] | dict[str, Any]
        if len(layers) == 1 and isinstance(layers[0], Mapping):
            self.layers = dict(cast("Mapping[str, Layer]", layers[0]))
        else:
            self.layers = list(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self:
            x = layer(x)
        return x

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.layers.values() if isinstance(self.layers, dict) else self.layers)

    def __getitem__(self, index: int | slice | str) -> Any:
        if isinstance(index, slice):
            names = list(self.layers)[index] if isinstance(self.layers, dict) else None
            return Sequential(*list(self)[index]) if names is None else Sequential({n: self[n] for n in names})
        if isinstance(index, str):
            if isinstance(self.layers, dict) and index in self.layers:
                return self.layers[index]
            raise PositionError("Sequential", f"there is no layer {index!r}", f"{_names(self.children())}")
        return list(self)[_position("Sequential", index, len(self))]

    def __setitem__(self, index: int, layer: Layer) -> None:
        refuse_torch(Sequential, str(index), layer)
        position = _position("Sequential", index, len(self))
        if isinstance(self.layers, dict):
            self.layers[list(self.layers)[position]] = layer
        else:
            self.layers[position] = layer

    def append(self, layer: Layer) -> Sequential:
        """Add a layer at the end, named by its position; returns this model."""
        refuse_torch(Sequential, str(len(self)), layer)
        if isinstance(self.layers, dict):
            self.layers[str(len(self.layers))] = layer
        else:
            self.layers.append(layer)
        return self


class ModuleList(Model):
    """Models in a list, which a forward function calls as it likes: named 0, 1, ... as those in a Python list.

    Raises ArgumentError for items that are not models, PositionError for positions out of range."""

    def build(self, modules: Iterable[Model] = ()) -> None:
        self._items: list[Model] = []
        self.extend(modules)

    def children(self) -> Iterator[tuple[str, Model]]:
        return ((str(i), item) for i, item in enumerate(self._items))

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return ModuleList(self._items[index])
        return self._items[_position("ModuleList", index, len(self))]

    def __setitem__(self, index: int, model: Model) -> None:
        self._items[_position("ModuleList", index, len(self))] = _model("ModuleList", model)
        tracing.invalidate()

    def __delitem__(self, index: int | slice) -> None:
        del self._items[index if isinstance(index, slice) else _position("ModuleList", index, len(self))]
        tracing.invalidate()

    def append(self, model: Model) -> ModuleList:
        """Add a model at the end; returns this list."""
        return self.insert(len(self), model)

    def extend(self, models: Iterable[Model]) -> ModuleList:
        """Add models at the end; returns this list."""
        for model in models:
            self.append(model)
        return self

    def insert(self, index: int, model: Model) -> ModuleList:
        """Add a model before position `index`; returns this list."""
        self._items.insert(index, _model("ModuleList", model))
        tracing.invalidate()
        return self


class ModuleDict(Model):
    """Models by name, which a forward function calls as it likes.

    Raises ArgumentError for items that are not models, PositionError for unknown names."""

    def build(self, modules: Mapping[str, Model] | Iterable[tuple[str, Model]] = ()) -> None:
        self._items: dict[str, Model] = {}
        self.update(modules)

    def children(self) -> Iterator[tuple[str, Model]]:
        return iter(self._items.items())

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __getitem__(self, name: str) -> Any:
        if name not in self._items:
            raise PositionError("ModuleDict", f"there is no model {name!r}", _names(self.children()))
        return self._items[name]

    def __setitem__(self, name: str, model: Model) -> None:
        self._items[name] = _model("ModuleDict", model)
        tracing.invalidate()

    def __delitem__(self, name: str) -> None:
        self.pop(name)

    def pop(self, name: str) -> Any:
        """Remove a model; returns it."""
        model = self[name]
        del self._items[name]
        tracing.invalidate()
        return model

    def update(self, modules: Mapping[str, Model] | Iterable[tuple[str, Model]]) -> None:
        """Add models by name, replacing models of equal names."""
        for name, model in dict(modules).items():
            self[name] = model

    def keys(self) -> Iterable[str]:
        """The names, in the order in which they were added."""
        return self._items.keys()

    def values(self) -> Iterable[Any]:
        """The models, in the order in which they were added."""
        return self._items.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Pairs of name and model, in the order in which they were added."""
        return self._items.items()


def _model(where: str, value: object) -> Model:
    if not isinstance(value, Model):
        remedy = "call the class" if isinstance(value, type) else "keep functions in a Python list"
        raise ArgumentError(where, f"an item is {getattr(value, '__name__', type(value).__name__)}", "a Model", remedy)
    return value


def _position(where: str, index: int, length: int) -> int:
    if not -length <= index < length:
        allowed = f"{-length} to {length - 1}" if length else "no position, as it is empty"
        raise PositionError(where, f"position {index} is out of range", allowed)
    return index % length


def _names(children: Iterable[tuple[str, Any]]) -> str:
    return ", ".join(name for name, _ in children) or "no name, as it is empty"
