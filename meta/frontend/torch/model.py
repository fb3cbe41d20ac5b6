"""An exported program of PyTorch as a meta Model: run, compiled, trained, saved."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import meta
from meta import tracing
from meta.device import Device
from meta.dim import SymDim
from meta.dtype import is_float
from meta.eager.ndarray import NDArray, asarray, move_in_place
from meta.errors import ArgumentError
from meta.frontend.reader import errors_located
from meta.frontend.torch.errors import TorchProgramError, UnsupportedError
from meta.frontend.torch.exported import Exported
from meta.frontend.torch.graph import check_operators, run
from meta.ir.builder import Module
from meta.ir.type import TensorType, tensor_type
from meta.model.model import Model
from meta.modes import modes
from meta.schema._dsl import TensorLike
from meta.tracing.open_sizes import OpenSizes
from meta.tracing.program import check_inputs
from meta.tree import Tree

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class _UserInput:
    """An input of the user. path: its name in errors and programs.  type: as of a placeholder."""

    path: str
    type: Any


class ExportedModel(Model):
    """A program that torch exported, called with the arguments of the exported module, as `meta.frontend.torch`'s
    `from_exported` and `load` return it.

    Its state has torch's names (`state_dict`), shared weights are one array, and tensors that torch keeps out of state
    dicts (constants, buffers that are not persistent) are in `constants`. Results are nests as torch returns them.

    The program is the module as it was exported: one exported in train mode drops out, and normalises by its batch
    while it moves the running statistics, in both modes of this model. The modes differ in whether parameters require
    gradients. Sizes that were exported as dynamic stay open in `meta.vm.compile(model)`, within their bounds.
    """

    constants: dict[str, NDArray]

    def build(self, program: Exported, device: Device) -> None:
        """program: what was read.  device: of the state. Raises UnsupportedError with all operators that meta lacks."""
        check_operators(program.graph)
        self._program = program
        self._state: dict[str, NDArray] = {}
        self._names_of: dict[str, list[str]] = {}
        self._buffer_names: set[str] = set()
        self._attached: list[tuple[str, NDArray] | None] = []
        self.constants = {}
        self._attach(program, device)
        self._inputs = _user_inputs(program)
        self._signature = _signature(program)
        self._traced_result = _without_classes(program.result)
        self.open_sizes = _open_sizes(self._inputs, program.bounds)
        """Sizes that `meta.vm.compile` leaves open; None if there are none."""

    def _attach(self, program: Exported, device: Device) -> None:
        """The array of each placeholder of the graph that is not an input of the user."""
        arrays: dict[Any, tuple[str, NDArray]] = {}
        for spec in program.inputs:
            if spec.kind == "user":
                self._attached.append(None)
                continue
            key = spec.kind == "constant", program.shared[spec.target]
            if key not in arrays:
                arrays[key] = spec.target, _array(program.values[spec.target], device)
                (self.constants if spec.kind == "constant" else self._state)[spec.target] = arrays[key][1]
                if spec.kind == "buffer":
                    self._buffer_names.add(spec.target)
            first, array = arrays[key]
            names = self._names_of.setdefault(first, [])
            if spec.target not in names:
                names.append(spec.target)
            self._attached.append((first, array))

    # --- state -------------------------------------------------------------------------------------------------------

    def _direct_arrays(self) -> Iterator[tuple[str, NDArray]]:
        return iter(self._state.items())

    def _buffer_ids(self) -> set[int]:
        return {id(self._state[name]) for name in self._buffer_names}

    def state_dict(self) -> dict[str, NDArray]:
        """Every array by its name in torch; a shared array under each of its names."""
        return {name: x for first, x in self._state.items() for name in self._names_of[first]}

    def load_torch_state_dict(
        self, state: Mapping[str, Any], strict: bool = True, rename: Callable[[str], str | None] | None = None
    ) -> Any:
        """As `Model.load_torch_state_dict`; the other names of shared arrays may be there or not."""
        others = {name for names in self._names_of.values() for name in names[1:]}

        def renamed(name: str) -> str | None:
            name = (rename(name) if rename is not None else name) or ""
            return None if not name or (name in others and self._first(name) in state) else self._first(name)

        return super().load_torch_state_dict(state, strict, renamed)

    def _first(self, name: str) -> str:
        """The first name of a shared array; the name itself for others."""
        return next((first for first, names in self._names_of.items() if name in names), name)

    def to(self, device: Device | str | None = None, dtype: object = None) -> Self:
        super().to(device, dtype)
        for x in self.constants.values():
            move_in_place(x, device, dtype if is_float(x.dtype) else None)
        tracing.invalidate()
        return self

    # --- calls -------------------------------------------------------------------------------------------------------

    @property
    def forward(self) -> Any:
        """The program as a function with the signature of the exported module."""

        def forward(*args: object, **kwargs: object) -> Any:
            return self._run(args, kwargs)

        forward.__signature__ = self._signature
        return forward

    def record(self, *args: object, **kwargs: object) -> tracing.Record:
        """Trace a call; the program's state is named as in torch. Without arguments: of the exported types."""
        if not args and not kwargs and self._inputs:
            args = self._example()
        names = {id(x): name for name, x in (*self.constants.items(), *self._state.items())}
        return tracing.record(self.forward, args, kwargs, names)

    @property
    def module(self) -> Module:
        """The program for the exported types: "main" takes the inputs, then the state."""
        return self.record().module

    def check(self) -> None:
        """Convert the program once. Raises TorchProgramError, with the node, for what cannot be converted."""
        if not any(isinstance(each.type, SymDim) for each in self._inputs):
            with errors_located(TorchProgramError, UnsupportedError, "torch", lambda: "the outputs"):
                self.record()

    def _example(self) -> tuple[Any, ...]:
        """The types of the inputs, as arguments by position: the keywords of a file need not be valid names."""
        types: list[Any] = [each.type for each in self._inputs]
        unknown = [each.path for each in self._inputs if isinstance(each.type, SymDim)]
        if unknown:
            raise ArgumentError("torch", f"the number '{unknown[0]}' was exported as dynamic", "its value",
                                "pass the arguments of a call")  # fmt: skip
        args, kwargs = self._program.arguments.build(iter(types))
        return *args, *kwargs.values()

    def _run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        values = self._flattened(args, kwargs)
        self._check(values)
        arguments = iter(values)
        placed = [next(arguments) if each is None else self._value(*each) for each in self._attached]
        outputs = run(self._program.graph, placed, checked=True)
        inputs = {p.name: value for p, value in zip(self._program.graph.inputs, placed, strict=True)}
        state = {spec.target: v for spec, v in zip(self._program.inputs, placed, strict=True) if spec.target}
        results: list[Any] = []
        for spec, value in zip(self._program.outputs, outputs, strict=True):
            if spec.kind == "user":
                results.append(value)
            else:
                (state if spec.kind == "state" else inputs)[spec.target].update(value.detach())
        return (self._program.result if modes.trace is None else self._traced_result).build(iter(results))

    def _value(self, name: str, array: NDArray) -> Any:
        if modes.trace is not None and name in self.constants:
            modes.trace.register_constant(array)
        return array

    def _flattened(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """The inputs of the user, in the order of the graph. Raises ArgumentError for another structure."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError("torch", str(error), f"{self._signature}") from None
        leaves: list[Any] = []
        children = (child for part in self._program.arguments.children for child in part.children)
        for (name, value), tree in zip(bound.arguments.items(), children, strict=True):
            leaves += _matched(value, tree, name)
        return leaves

    def _check(self, values: Sequence[Any]) -> None:
        """Raise ArgumentError for inputs of other types than those exported."""
        tensors: list[tuple[str, TensorType, Any]] = []
        for each, value in zip(self._inputs, values, strict=True):
            if isinstance(each.type, TensorType):
                if not isinstance(value, TensorLike):
                    raise ArgumentError("torch", f"input '{each.path}' is {_described(value)}", f"{each.type!r}",
                                        "wrap it: meta.array(...)")  # fmt: skip
                tensors.append((each.path, each.type, value))
            elif isinstance(each.type, SymDim):
                if isinstance(value, bool) or not isinstance(value, (int, SymDim)):
                    raise ArgumentError("torch", f"input '{each.path}' is {_described(value)}", "an int")
            elif type(value) is not type(each.type) or value != each.type:
                raise ArgumentError(
                    "torch",
                    f"input '{each.path}' is {_described(value)}",
                    f"{each.type!r}, which the program was exported for",
                    "export it again for another value",
                )
        if not tensors or any(not x.type.is_static for _, _, x in tensors):
            return
        names, types, arrays = zip(*tensors, strict=True)
        placed = [tensor_type(kind.shape, kind.dtype, x.device) for kind, x in zip(types, arrays, strict=True)]
        sizes = check_inputs("torch", names, placed, arrays)
        if self.open_sizes is not None:
            self.open_sizes.check_bounds("torch", sizes)


def _array(value: Any, device: Device) -> NDArray:
    """A tensor of torch copied, or one of a file, over its memory."""
    if hasattr(value, "numel"):
        return meta.from_dlpack(value.detach(), copy=True).to(device=device)
    return asarray(value, device=device)


def _described(value: Any) -> str:
    kind = type(value)
    if hasattr(value, "shape"):
        return f"a {kind.__module__}.{kind.__name__} of shape {tuple(value.shape)}"
    return repr(value)[:80]


def _without_classes(tree: Tree) -> Tree:
    """A structure with mappings of other classes as dicts, and other classes as tuples: their constructors may ask for
    the values of tensors, which a trace has not."""
    children = tuple(map(_without_classes, tree.children))
    if tree.kind != "namedtuple" or hasattr(tree.value, "_fields"):
        return replace(tree, children=children)
    is_mapping = all(isinstance(key, str) for key in tree.keys)
    return Tree("dict", children, tree.keys) if is_mapping else Tree("tuple", children)


def _signature(program: Exported) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(name, kind) for name in program.names])


def _user_inputs(program: Exported) -> tuple[_UserInput, ...]:
    """The inputs of the user with their paths, as in `batch.0`."""
    children = (child for part in program.arguments.children for child in part.children)
    paths = [path for name, tree in zip(program.names, children, strict=True) for path in _paths(tree, name)]
    kinds = [p.type for p, spec in zip(program.graph.inputs, program.inputs, strict=True) if spec.kind == "user"]
    return tuple(_UserInput(path, kind) for path, kind in zip(paths, kinds, strict=True))


def _paths(tree: Tree, name: str) -> Iterator[str]:
    if tree.kind == "leaf":
        yield name
    for key, child in zip(tree.keys or range(len(tree.children)), tree.children, strict=True):
        yield from _paths(child, f"{name}.{key}")


def _matched(value: object, tree: Tree, name: str) -> Iterator[Any]:
    """The leaves of an argument of the structure `tree`. Raises ArgumentError for another structure."""
    if tree.kind == "leaf":
        yield value
        return
    items = _items(value, tree)
    if items is None:
        keys = f" with {', '.join(map(str, tree.keys))}" if tree.keys else f" of {len(tree.children)}"
        what = "mapping" if tree.kind == "dict" else tree.kind
        raise ArgumentError("torch", f"argument '{name}' is {_described(value)}", f"a {what}{keys}, as exported")
    for key, item, child in zip(tree.keys or range(len(items)), items, tree.children, strict=True):
        yield from _matched(item, child, f"{name}.{key}")


def _items(value: Any, tree: Tree) -> list[Any] | None:
    """The items of a container in the order of `tree`; None if it is another container."""
    if isinstance(value, Mapping):
        same = len(value) == len(tree.keys) and all(key in value for key in tree.keys)
        return [value[key] for key in tree.keys] if same else None
    if tree.kind == "dict" or isinstance(value, (str, TensorLike)) or not hasattr(value, "__len__"):
        return None
    return list(value) if len(value) == len(tree.children) else None


def _open_sizes(inputs: Sequence[_UserInput], bounds: Mapping[str, tuple[int, int | None]]) -> OpenSizes | None:
    axes: dict[str, dict[int, SymDim]] = {}
    for each in inputs:
        if isinstance(each.type, TensorType):
            sizes = {axis: dim for axis, dim in enumerate(each.type.shape) if isinstance(dim, SymDim)}
            if sizes:
                axes[each.path] = sizes
    return OpenSizes(axes, bounds) if axes else None
