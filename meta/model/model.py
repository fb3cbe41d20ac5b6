"""`meta.Model`: build parameters, run forward, switch modes, save and load state."""

from __future__ import annotations

import functools
from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from meta import spellings, tracing
from meta.device import Device
from meta.dtype import is_float
from meta.eager.gradient_graph import set_requires_grad
from meta.eager.named_state import Unmatched, fitting_state, refuse_names, without_gradients
from meta.eager.ndarray import NDArray, move_in_place
from meta.errors import ArgumentError, MetaError, TraceError, TypeInferenceError
from meta.model.hooks import ForwardHook, ForwardPreHook, HookHandle, Hooks, added
from meta.model.inputs import refuse_call, refuse_foreign_array, refuse_input, refuse_torch, remember_call, suggest_size
from meta.model.torch_state import load_torch_state_dict, torch_state
from meta.modes import modes, no_grad, scopes
from meta.schema.annotations import CheckedArguments, as_input, explained
from meta.tracing.symbol import Symbol
from meta.tree import is_dict, is_sequence, named_leaves

if TYPE_CHECKING:
    from typing_extensions import Self


class _Constructor(ABCMeta):
    """Marks the parameters of a new model when all of its constructors have run, whichever of them created the arrays.

    An ABCMeta, so that a model may also inherit from an abstract base class."""

    if not TYPE_CHECKING:  # a call of a class has the type of an instance

        def __call__(cls, *args: object, **kwargs: object) -> Any:
            model = super().__call__(*args, **kwargs)
            model._set_requires_grad()
            if cls._input_size is not None:
                remember_call(model, args, kwargs)
            return model


class Model(CheckedArguments, metaclass=_Constructor):
    """Base class of models. Array attributes are parameters, Model attributes are sub-models; both may be in lists and
    dicts.

        class MLP(meta.Model):
            def build(self, hidden: int):
                self.first = meta.nn.Linear(784, hidden)
                self.last = meta.nn.Linear(hidden, 10)

            @meta.model.trace
            def forward(self, x):
                return self.last(meta.relu(self.first(x)))

    `__init__` passes its arguments to `build`; a subclass may define `__init__` instead, and need not call Model's.
    A new model is in train mode: its floating parameters require gradients, except those frozen by
    `x.requires_grad = False`. Arrays registered with `buffer` are saved and moved with the model, but not trained. A
    subclass may define `forward_infer` for inference mode.
    """

    _buffers: set[str]
    _hooks: Hooks | None = None
    _torch_names: ClassVar[Mapping[str, str]] = {}
    """Attributes and paths whose names in torch differ; `meta.model.names.Alias` fills it."""
    _input_size: ClassVar[tuple[str, int] | None] = None
    """The constructor's argument that sets the size of an axis of the input, and the axis."""
    _torch_unused: ClassVar[tuple[str, ...]] = ()
    """Entries of torch's state that have no counterpart here."""
    _torch_vectors: ClassVar[tuple[str, ...]] = ()
    """Attributes that are vectors in torch, and have further axes of size 1 here."""

    def __new__(cls, *_: Any, **__: Any) -> Self:
        self = super().__new__(cls)
        object.__setattr__(self, "_buffers", set())
        vars(self)["training"] = True
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.build(*args, **kwargs)

    if not TYPE_CHECKING:  # a type checker would take every attribute for granted

        def __getattr__(self, name: str) -> Any:
            """Raises AttributeError for a missing attribute; for a name of torch it says what to write."""
            return spellings.missing_member(self, "model", name)

    def build(self, *args: Any, **kwargs: Any) -> None:
        """Create parameters and sub-models. Called once with the constructor's arguments."""
        if args or kwargs:
            hints = (as_input(self, args), *(spellings.argument_hint(name, ()) for name in kwargs))
            hint = next(filter(None, hints), "define build")
            raise ArgumentError(type(self).__name__, "got arguments, but defines no build()", remedy=hint)

    @property
    def training(self) -> bool:
        """Whether this model is in train mode. Programs are kept for each mode of the models that they were traced
        through, or that the traced function asked for their modes."""
        training: bool = self.__dict__["training"]
        if scopes.active and modes.trace is not None:
            modes.trace.read_mode(self, training)
        return training

    @training.setter
    def training(self, training: bool) -> None:
        vars(self)["training"] = training

    def _no_forward(self, *args: Any, **kwargs: Any) -> Any:
        hint = "define it, or call the parts: for part in model: x = part(x)"
        raise NotImplementedError(f"{type(self).__name__} defines no forward(); {hint}")

    # Any, so that a subclass may define a method, or a traced one, of any signature.
    forward: Any = _no_forward
    """Compute the result. Every model defines this method."""

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if scopes.active and modes.trace is not None:
            modes.trace.reached([*self._containers()])
            modes.trace.read_mode(self, self.training)
        try:
            if self._hooks is not None:
                return self._hooks.call(self, self._active_forward(), args, kwargs)
            return self._active_forward()(*args, **kwargs)
        except AttributeError as error:
            refuse_input(type(self), self.forward, error, args, kwargs)
            raise
        except TypeInferenceError as error:
            suggest_size(self, type(self)._input_size, error, args)
            raise
        except TypeError as error:
            if not isinstance(error, MetaError):
                refuse_call(type(self), self.forward, args, kwargs)
            raise

    def _active_forward(self) -> Callable[..., Any]:
        is_inferring = not self.__dict__["training"] and hasattr(type(self), "forward_infer")
        return getattr(self, "forward_infer" if is_inferring else "forward")

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute. A changed value invalidates the programs traced from the model. Raises TraceError for a
        traced tensor, which would outlive its trace, ArgumentError for modules and parameters of torch, and for arrays
        of other libraries in place of an array."""
        if isinstance(value, Symbol):
            raise TraceError(
                type(self).__name__,
                f"'{name}' is set to {value!r} while tracing",
                "arrays and plain values",
                "write to an array with self.x.update(value), or return the value",
            )
        refuse_torch(type(self), name, value)
        if isinstance(self.__dict__.get(name), NDArray):
            refuse_foreign_array(type(self), name, value)
        if name in self.__dict__ and not _is_unchanged(self.__dict__[name], value):
            (tracing.change_mode if name == "training" else tracing.invalidate)()
        object.__setattr__(self, name, value)

    def buffer(self, name: str, value: NDArray) -> None:
        """Set the attribute `name` to `value` as a buffer: state that is not trained (running statistics, counters)."""
        self._buffers.add(name)
        setattr(self, name, value)

    def register_forward_pre_hook(
        self, hook: ForwardPreHook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Call `hook(model, args)` before every forward call; what it returns, unless None, replaces the arguments (a
        tuple, or a single one). with_kwargs: call `hook(model, args, kwargs)`, which returns a pair or None.

        Hooks run in the order of their registration; prepend: before those that exist. In a traced function a hook
        runs while the program is recorded, and the operators that it calls become part of the program.
        `handle.remove()` removes it."""
        self._hooks = self._hooks or Hooks()
        return added(self._hooks.before, hook, prepend, with_kwargs)

    def register_forward_hook(
        self, hook: ForwardHook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Call `hook(model, args, result)` after every forward call; what it returns, unless None, is the result.
        with_kwargs: call `hook(model, args, kwargs, result)`. Otherwise as `register_forward_pre_hook`."""
        self._hooks = self._hooks or Hooks()
        return added(self._hooks.after, hook, prepend, with_kwargs)

    # --- traversal ---------------------------------------------------------------------------------------------------

    def children(self) -> Iterator[tuple[str, Model]]:
        """Direct sub-models with their names; names in lists and dicts are `list.0`, `dict.key`."""
        return named_leaves(self.__dict__, Model)

    def models(self, prefix: str = "") -> Iterator[tuple[str, Model]]:
        """This model, named "", and all its sub-models with dotted names."""
        yield prefix, self
        for name, child in self.children():
            yield from child.models(f"{prefix}.{name}" if prefix else name)

    def named_children(self) -> Iterator[tuple[str, Model]]:
        """The same as `children`."""
        return self.children()

    def named_models(self, prefix: str = "") -> Iterator[tuple[str, Model]]:
        """As `models`, with each model once, under its first name."""
        seen: set[int] = set()
        for name, model in self.models(prefix):
            if id(model) not in seen:
                seen.add(id(model))
                yield name, model

    named_modules = named_models

    def apply(self, function: Callable[[Model], Any]) -> Self:
        """Call `function` on every sub-model, then on this model, as to initialise parameters; returns this model."""
        for _, child in self.children():
            child.apply(function)
        function(self)
        return self

    def named_state(self) -> Iterator[tuple[str, NDArray]]:
        """Every parameter and buffer with its dotted name; a shared array is listed once."""
        seen: set[int] = set()
        for prefix, model in self.models():
            for name, value in model._direct_arrays():
                if id(value) not in seen:
                    seen.add(id(value))
                    yield f"{prefix}.{name}" if prefix else name, value

    def _direct_arrays(self) -> Iterator[tuple[str, NDArray]]:
        """The model's arrays with their names, without the arrays of sub-models."""
        return named_leaves(self.__dict__, NDArray)

    def _containers(self) -> Iterator[Any]:
        """The lists and dicts in the public attributes; `__setattr__` does not see them change."""
        return (c for name, value in self.__dict__.items() if name[0] != "_" for c in _containers(value))

    def named_parameters(self) -> Iterator[tuple[str, NDArray]]:
        """Floating-point arrays that are not buffers, with dotted names."""
        buffers = self._buffer_ids()
        return ((n, x) for n, x in self.named_state() if id(x) not in buffers and is_float(x.dtype))

    def named_buffers(self) -> Iterator[tuple[str, NDArray]]:
        """Arrays registered with `buffer`, with dotted names."""
        buffers = self._buffer_ids()
        return ((n, x) for n, x in self.named_state() if id(x) in buffers)

    def _buffer_ids(self) -> set[int]:
        values = [m.__dict__[name] for _, m in self.models() for name in m._buffers]
        return {id(x) for _, x in named_leaves(values, NDArray)}

    def parameters(self) -> list[NDArray]:
        return [x for _, x in self.named_parameters()]

    # --- modes -------------------------------------------------------------------------------------------------------

    def train_mode(self, recursive: bool = True) -> Self:
        """Switch to training: parameters require gradients unless they are frozen (`x.requires_grad = False`), dropout
        is active, batch norm uses batch statistics."""
        return self._set_mode(True, recursive)

    def infer_mode(self, recursive: bool = True) -> Self:
        """Switch to inference: no gradients, no dropout, batch norm uses running statistics."""
        return self._set_mode(False, recursive)

    def _set_mode(self, training: bool, recursive: bool) -> Self:
        for _, model in self.models() if recursive else [("", self)]:
            vars(model)["training"] = training
        self._set_requires_grad()
        tracing.change_mode()
        return self

    def _set_requires_grad(self) -> None:
        buffers = self._buffer_ids()
        for _, model in self.models():
            for _, value in model._direct_arrays():
                if id(value) not in buffers and is_float(value.dtype) and value.is_leaf:
                    set_requires_grad(value, model.training and not value._frozen)

    @explained
    def zero_grad(self) -> None:
        """Drop the gradients of all parameters."""
        for x in self.parameters():
            x.grad = None

    # --- state -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, NDArray]:
        """Every array by dotted name, without gradients. They share the memory of the model: copy them to keep a
        snapshot."""
        return without_gradients(self.named_state())

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> Unmatched:
        """Copy values into the model's arrays. Raises ArgumentError for missing, unknown or misshapen entries, before
        any array is written.

        strict: with False, missing and unknown names are left alone. They are returned in any case."""
        arrays = dict(self.named_state())
        known = is_dict(state) and bool(state.keys() & arrays.keys()) and (not strict or state.keys() <= arrays.keys())
        if is_dict(state) and not known and state and state.keys() <= torch_state(self).keys():
            remedy = "these are torch's names: write model.load_torch_state_dict(state)"
            refuse_names("load_state_dict", Unmatched.of(arrays, state), arrays, "the model", remedy)
        loaded, unmatched = fitting_state(arrays, state, "the model", strict)
        with no_grad():
            for name, value in loaded.items():
                arrays[name].update(value)
        return unmatched

    def load_torch_state_dict(
        self, state: Mapping[str, Any], strict: bool = True, rename: Callable[[str], str | None] | None = None
    ) -> Unmatched:
        """Copy the values of a torch state dict into the model's arrays, by the names that they have in torch: `w` and
        `b` of layers are `weight` and `bias` there, and attributes of your own models have their own names.

        state: torch tensors, NumPy arrays or arrays by name. Floating values are converted to the model's dtypes.
        strict: whether names that only one side has are errors; otherwise they are returned.
        rename: name in `state` -> name in the model, or None to leave an entry out, such as
            `lambda name: name.removeprefix("module.")`.
        Raises ArgumentError for names and shapes that do not match, before any array is written."""
        return load_torch_state_dict(self, state, strict, rename)

    def torch_state_dict(self) -> dict[str, NDArray]:
        """The arrays of the model by the names that they have in torch, the inverse of `load_torch_state_dict`; not
        copies. `torch.from_dlpack` makes torch tensors of them, and `meta.save` a file that torch reads."""
        return torch_state(self)

    @explained
    def to(self, device: Device | str | None = None, dtype: object = None) -> Self:
        """Move every array of the model, with its gradient, to `device` and convert floating ones to `dtype`.

        The arrays keep their identity: optimizers and other holders go on with the moved ones. Raises TraceError inside
        a traced function."""
        if modes.trace is not None:
            raise TraceError(type(self).__name__, "the model is moved while tracing", "models that stay where they are",
                             "call to() outside of the traced function")  # fmt: skip
        moved = [move_in_place(x, device, dtype if is_float(x.dtype) else None) for _, x in self.named_state()]
        if any(moved):
            self._set_requires_grad()
            tracing.invalidate()
        return self

    # --- tracing -----------------------------------------------------------------------------------------------------

    def record(self, *args: object, **kwargs: object) -> tracing.Record:
        """Trace a call in the current mode; the program's state is named as in the model."""
        names = {id(x): name for name, x in self.named_state()}
        forward = self._active_forward()
        function = getattr(forward, "function", forward)
        if self._hooks is not None:
            function = _with_hooks(self, self._hooks, function)
        return tracing.record(function, args, kwargs, names, [*self._containers()])

    def ir(self, *args: object, **kwargs: object) -> str:
        """The text of the recorded program."""
        return str(self.record(*args, **kwargs).module)

    def __repr__(self) -> str:
        lines = [f"  ({name}): " + repr(child).replace("\n", "\n  ") for name, child in self.children()]
        arrays = [f"  {name}: {x.type!r}" for name, x in self._direct_arrays()]
        body = "\n".join([*arrays, *lines])
        return f"{type(self).__name__}(\n{body}\n)" if body else f"{type(self).__name__}()"


def _with_hooks(model: Model, hooks: Hooks, forward: Callable[..., Any]) -> Callable[..., Any]:
    """`forward` with the model's hooks around it, and its signature."""

    @functools.wraps(forward)
    def call(*args: object, **kwargs: object) -> Any:
        return hooks.call(model, forward, args, kwargs)

    return call


def _is_unchanged(old: object, new: object) -> bool:
    """Whether a program traced with the attribute value `old` is also valid for `new`."""
    plain = (bool, int, float, str, type(None))
    return old is new or (type(old) is type(new) and isinstance(old, plain) and old == new)


def _containers(value: object) -> Iterator[Any]:
    """The lists and dicts in a nested value; large ones count as data and are not compared at every call."""
    # Changes of lists and dicts up to this size invalidate traced programs; larger ones count as data.
    max_watched_items = 256
    if not (is_sequence(value) or is_dict(value)) or len(value) > max_watched_items:
        return
    if not isinstance(value, tuple):
        yield value
    for item in value.values() if is_dict(value) else value:
        yield from _containers(item)
