"""`meta.Model`: build parameters, run forward, switch modes, save and load state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from meta import tracing
from meta.autograd.api import no_grad
from meta.device import Device
from meta.dtype import is_float
from meta.eager.ndarray import NDArray, asarray
from meta.errors import ArgumentError, TraceError, did_you_mean
from meta.modes import modes, scopes
from meta.tracing.symbol import Symbol

if TYPE_CHECKING:
    from typing_extensions import Self


T = TypeVar("T")
_WIDEST = 256
"""Items of the largest list or dict whose changes make traced programs stale."""


class Model:
    """Base of models: attributes that are arrays are parameters, attributes that are Models are sub-models, also those
    inside lists and dicts.

        class MLP(meta.Model):
            def build(self, hidden: int):
                self.first = meta.nn.Linear(784, hidden)
                self.last = meta.nn.Linear(hidden, 10)

            @meta.model.trace
            def forward(self, x):
                return self.last(meta.relu(self.first(x)))

    `__init__` passes its arguments to `build`. A new model is in train mode: its floating parameters require gradients.
    Arrays registered with `buffer` are state that is saved and moved but never trained. A subclass may define
    `forward_infer` for inference mode.
    """

    training: bool
    _buffers: set[str]

    def __new__(cls, *_: Any, **__: Any) -> Self:
        self = super().__new__(cls)
        object.__setattr__(self, "_buffers", set())
        object.__setattr__(self, "training", True)
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.build(*args, **kwargs)
        self._set_requires_grad()

    def build(self, *args: Any, **kwargs: Any) -> None:
        """Create parameters and sub-models. Called once with the constructor's arguments."""
        if args or kwargs:
            raise ArgumentError(type(self).__name__, "arguments given, but it has no build()", remedy="define build")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The computation; every model defines it."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if scopes.active and modes.trace is not None:
            modes.trace.reached(self._containers())
        return self._active_forward()(*args, **kwargs)

    def _active_forward(self) -> Callable[..., Any]:
        infer = getattr(self, "forward_infer", None)
        return infer if infer is not None and not self.training else self.forward

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute. One that changes makes programs traced from the model stale. Raises TraceError for a traced
        tensor, which would outlive its trace."""
        if isinstance(value, Symbol):
            raise TraceError(
                type(self).__name__,
                f"'{name}' is set to {value!r} while tracing",
                "arrays and plain values",
                "write to an array with self.x.update(value), or return the value",
            )
        if name in self.__dict__ and not _same(self.__dict__[name], value):
            tracing.invalidate()
        object.__setattr__(self, name, value)

    def buffer(self, name: str, value: NDArray) -> None:
        """Make `value` the attribute `name`: state that is no parameter (running statistics, counters)."""
        self._buffers.add(name)
        setattr(self, name, value)

    # --- traversal ---------------------------------------------------------------------------------------------------

    def children(self) -> Iterator[tuple[str, Model]]:
        """Direct sub-models with their names; those in lists and dicts are called `list.0`, `dict.key`."""
        return _found(Model, self.__dict__)

    def models(self, prefix: str = "") -> Iterator[tuple[str, Model]]:
        """This model ("") and all below it, with dotted names."""
        yield prefix, self
        for name, child in self.children():
            yield from child.models(f"{prefix}.{name}" if prefix else name)

    def named_state(self) -> Iterator[tuple[str, NDArray]]:
        """Every array of the model, parameters and buffers, with its dotted name; a shared array comes once."""
        seen: set[int] = set()
        for prefix, model in self.models():
            for name, value in model._own():
                if id(value) not in seen:
                    seen.add(id(value))
                    yield f"{prefix}.{name}" if prefix else name, value

    def _own(self) -> Iterator[tuple[str, NDArray]]:
        """The arrays that are no sub-model's, with their names."""
        return _found(NDArray, self.__dict__)

    def _containers(self) -> Iterator[Any]:
        """The lists and dicts among the public attributes, which change without `__setattr__`."""
        return (c for name, value in self.__dict__.items() if name[0] != "_" for c in _containers(value))

    def named_parameters(self) -> Iterator[tuple[str, NDArray]]:
        """Floating arrays that are not buffers, with dotted names."""
        buffers = {id(x) for _, m in self.models() for name in m._buffers for _, x in _found(NDArray, m.__dict__[name])}
        return ((n, x) for n, x in self.named_state() if id(x) not in buffers and is_float(x.dtype))

    def parameters(self) -> list[NDArray]:
        return [x for _, x in self.named_parameters()]

    # --- modes -------------------------------------------------------------------------------------------------------

    def train_mode(self, recursive: bool = True) -> Self:
        """Train: parameters require gradients, dropout and batch statistics are active."""
        return self._set_mode(True, recursive)

    def infer_mode(self, recursive: bool = True) -> Self:
        """Inference: no gradients, running statistics, no dropout."""
        return self._set_mode(False, recursive)

    def _set_mode(self, training: bool, recursive: bool) -> Self:
        for _, model in self.models() if recursive else [("", self)]:
            object.__setattr__(model, "training", training)
        self._set_requires_grad()
        tracing.invalidate()
        return self

    def _set_requires_grad(self) -> None:
        for _, model in self.models():
            for name, value in model._own():
                if name.split(".")[0] not in model._buffers and is_float(value.dtype) and value.is_leaf:
                    value.requires_grad = model.training

    def zero_grad(self) -> None:
        """Drop the gradients of all parameters."""
        for x in self.parameters():
            x.grad = None

    # --- state -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, NDArray]:
        """Every array by dotted name. The arrays are the model's own: copy them to keep a snapshot."""
        return dict(self.named_state())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy values into the model's arrays. Raises ArgumentError for missing, unknown or misshapen entries, before
        anything is written."""
        mine = self.state_dict()
        if not isinstance(state, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            wrong = f"the state is {type(state).__name__}"
            raise ArgumentError("load_state_dict", wrong, "a mapping of names to arrays")
        unknown = [name for name in state if name not in mine]
        missing = [name for name in mine if name not in state]
        if unknown or missing:
            hint = did_you_mean(unknown[0], mine) if unknown else ""
            raise ArgumentError(
                "load_state_dict", f"unknown: {unknown}, missing: {missing}", "exactly the model's names", hint
            )
        loaded = {name: asarray(value, device=mine[name].device) for name, value in state.items()}
        for name, value in loaded.items():
            if value.type is not mine[name].type:
                raise ArgumentError(
                    "load_state_dict", f"'{name}' is {value.type!r}", f"{mine[name].type!r}, as in the model"
                )
        with no_grad():
            for name, value in loaded.items():
                mine[name].update(value)

    def to(self, device: Device | str | None = None, dtype: Any = None) -> Self:
        """Move and convert every floating array of the model (integers are only moved), in the model itself."""
        for _, model in self.models():
            for name, value in list(model.__dict__.items()):
                setattr(model, name, _moved(value, device, dtype))
        self._set_requires_grad()
        return self

    # --- tracing -----------------------------------------------------------------------------------------------------

    def record(self, *args: Any, **kwargs: Any) -> tracing.Record:
        """The program of a call in the present mode; its state has the model's names."""
        names = {id(x): name for name, x in self.named_state()}
        forward = self._active_forward()
        return tracing.record(getattr(forward, "function", forward), args, kwargs, names, self._containers())

    def ir(self, *args: Any, **kwargs: Any) -> str:
        """The text of the recorded program."""
        return str(self.record(*args, **kwargs).module)

    def __repr__(self) -> str:
        lines = [f"  ({name}): " + repr(child).replace("\n", "\n  ") for name, child in self.children()]
        own = [f"  {name}: {x.type!r}" for name, x in self._own()]
        body = "\n".join([*own, *lines])
        return f"{type(self).__name__}(\n{body}\n)" if body else f"{type(self).__name__}()"


def _same(old: Any, new: Any) -> bool:
    """Whether a program traced with the attribute value `old` holds with `new` too."""
    plain = (bool, int, float, str, type(None))
    return old is new or (type(old) is type(new) and isinstance(old, plain) and old == new)


def _found(kind: type[T], value: Any, name: str = "") -> Iterator[tuple[str, T]]:
    """Objects of a class in a nest of lists, tuples and dicts, with dotted names."""
    if isinstance(value, kind):
        yield name, value
    elif isinstance(value, (list, tuple, dict)):
        items: Any = value.items() if isinstance(value, dict) else enumerate(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        for key, item in items:
            yield from _found(kind, item, f"{name}.{key}" if name else str(key))


def _containers(value: Any) -> Iterator[Any]:
    """The lists and dicts in a nest of them; ones of many items are data, which nobody compares at every call."""
    if not isinstance(value, (list, tuple, dict)) or len(value) > _WIDEST:  # pyright: ignore[reportUnknownArgumentType]
        return
    if not isinstance(value, tuple):
        yield value
    for item in value.values() if isinstance(value, dict) else value:  # pyright: ignore[reportUnknownVariableType]
        yield from _containers(item)


def _moved(value: Any, device: Device | str | None, dtype: Any) -> Any:
    """`value` with the arrays in it on another device, floating ones in another dtype; itself when there are none."""
    if isinstance(value, NDArray):
        return value.detach().to(device=device, dtype=dtype if is_float(value.dtype) else None)
    if not any(_found(NDArray, value)):
        return value
    if isinstance(value, dict):
        return {key: _moved(item, device, dtype) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    made: Any = value
    make: Any = getattr(made, "_make", made.__class__)  # the former of a named tuple
    return make([_moved(item, device, dtype) for item in made])
