"""`OnnxProgram`: a model that runs, compiled or node by node."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import count
from keyword import iskeyword
from typing import Any

import numpy as np

from meta import vm
from meta.device import CPU, Device
from meta.dim import Dim
from meta.eager.ndarray import NDArray, asarray
from meta.errors import ArgumentError, did_you_mean
from meta.frontend.onnx.errors import OnnxError, UndecidedError, UnsupportedError
from meta.frontend.onnx.evaluator import NodeEvaluator
from meta.frontend.onnx.operator_use import READER
from meta.frontend.onnx.ops._values import tensor
from meta.frontend.onnx.source import SourceProgram
from meta.frontend.onnx.tensors import check_dtype
from meta.frontend.onnx.types import check_declared, input_type
from meta.frontend.reader import errors_located
from meta.frontend.relay.convert.values import identifier
from meta.ir.builder import Module
from meta.passes.composites import composites
from meta.passes.place import place
from meta.schema._dsl import TensorLike
from meta.tracing import Record, record

SMALL = 1 << 12
"""Elements of an integer input that is known when a model runs node by node: it may be a shape."""

Shapes = Mapping[str, Sequence[Dim]]


class OnnxProgram:
    """A model read by `from_onnx`. Call it with its inputs, in order or by name: it runs compiled if its shapes follow
    from its inputs' shapes, and node by node if they follow from values (see `undecided`).

    inputs, outputs: names, in order; initializers and `constants` are not among the inputs.
    undecided: why the model cannot be compiled; None if it can."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    undecided: UndecidedError | None

    def __init__(
        self, program: SourceProgram, constants: Mapping[str, Any], shapes: Shapes, device: Device,
        state: Mapping[str, NDArray] | None = None,
    ) -> None:  # fmt: skip
        """state: arrays in place of initializers, which become state of the traced program."""
        self._state = state or {}
        self._program = program
        self._constants = constants
        self._shapes = shapes
        self._device = device
        self._values = tuple(v for v in program.graph.inputs if v.const_value is None and v.name not in constants)
        self.inputs = tuple(v.name for v in self._values)
        self.outputs = tuple(v.name for v in program.graph.outputs)
        self._evaluator = NodeEvaluator(program, self._initializer)
        self.undecided = None

    def __repr__(self) -> str:
        return f"<OnnxProgram {self._program.name}: {', '.join(self.inputs)} -> {', '.join(self.outputs)}>"

    # --- running -----------------------------------------------------------------------------------------------------

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The outputs: a value, or a tuple of them if the model has several.

        Inputs are arrays; if the model runs node by node, the inputs that `interpret` takes."""
        arguments = self._bound(inputs, named)
        if self.undecided is not None:
            return self.interpret(*arguments)
        if self.traced.random:
            return self._executor(*arguments)
        outputs = self._executor(*arguments)
        return self.traced.result.build(iter(outputs if isinstance(outputs, tuple) else (outputs,)))

    def interpret(self, *inputs: Any, **named: Any) -> Any:
        """The outputs, node by node, with all values at hand: shapes may depend on them.

        Inputs are arrays, NumPy arrays, lists of those for sequences and None for an empty optional. Results are
        arrays, lists, None, and NumPy arrays of text. The nodes run on the CPU, whatever the program's device, to which
        the results are copied."""
        values = [self._eager(v, x) for v, x in zip(self._values, self._bound(inputs, named), strict=True)]
        results = self._outputs(self._evaluator.main(self._all(values)))
        return _single(results if self._device is CPU else tuple(_on(self._device, v) for v in results))

    def record(self, *inputs: Any, **named: Any) -> Record:
        """The program for inputs of these types, arrays or TensorTypes (`meta.vm.compile` takes this object).

        Raises UndecidedError where a shape depends on values."""
        names = {id(array): identifier(name) for name, array in self._state.items()}
        values = self._bound(inputs, named)
        with errors_located(OnnxError, UnsupportedError, "onnx", lambda: self._evaluator.place):
            recorded = record(self._forward, values, {}, names)
            module = composites(recorded.module)
        return replace(recorded, module=module if self._device is CPU else place(self._device)(module))

    @cached_property
    def traced(self) -> Record:
        """The program for inputs of the declared types, with symbolic sizes for open dimensions. Sizes that the
        operators require to be equal become one."""
        types = [input_type(v, CPU, self._shapes.get(v.name)) for v in self._values]
        return READER.converted(
            lambda tied: self.record(*(t.with_shape(tuple(tied.get(d, d) for d in t.shape)) for t in types))
        )

    @property
    def module(self) -> Module:
        """The Module of the declared types, which runs on the interpreter and the VM and can be differentiated."""
        return self.traced.module

    @cached_property
    def _executor(self) -> Any:
        """The compiled program: one for all sizes, unless it draws random numbers, whose keys each call makes."""
        return vm.compile(self if self.traced.random else self.traced.module, device=self._device)

    # --- inputs and outputs ------------------------------------------------------------------------------------------

    @cached_property
    def _forward(self) -> Any:
        def forward(*inputs: Any) -> Any:
            return _single(self._outputs(self._evaluator.main(self._all(inputs))))

        names_in_use = set(self.inputs)
        free = (f"input{i}" for i in count() if f"input{i}" not in names_in_use)
        names = [name if _is_parameter(name) else next(free) for name in self.inputs]
        kinds = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_ONLY) for n in names]
        forward.__signature__ = inspect.Signature(kinds)
        return forward

    def _all(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs of the graph, with those that are constants."""
        by_name = dict(zip(self.inputs, inputs, strict=True))
        graph = self._program.graph
        return [by_name[v.name] if v.name in by_name else self._evaluator.initializer(v) for v in graph.inputs]

    def _initializer(self, value: Any) -> Any:
        if value.name in self._state:
            return self._state[value.name]
        constant = self._constants.get(value.name)
        return None if constant is None else np.array(constant)

    def _bound(self, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """The inputs in order. Raises ArgumentError for missing and unknown ones."""
        if len(inputs) > len(self.inputs):
            raise ArgumentError("onnx", f"{len(inputs)} inputs", f"{len(self.inputs)}: {', '.join(self.inputs)}")
        values = dict(zip(self.inputs, inputs, strict=False))
        for name, value in named.items():
            if name not in self.inputs or name in values:
                problem = f"input '{name}' is given twice" if name in values else f"there is no input '{name}'"
                raise ArgumentError("onnx", problem, ", ".join(self.inputs), did_you_mean(name, self.inputs))
            values[name] = value
        missing = [name for name in self.inputs if name not in values]
        if missing:
            raise ArgumentError("onnx", f"input '{missing[0]}' is missing", f"values for {', '.join(self.inputs)}")
        return tuple(values[name] for name in self.inputs)

    def _eager(self, value: Any, argument: Any) -> Any:
        """An input as the rows expect it: small arrays of integers as NumPy arrays."""
        if argument is None:
            return None
        if isinstance(argument, (list, tuple)):
            return [self._eager(value, v) for v in argument]
        if hasattr(argument, "dtype"):
            check_declared(value, argument, f"input '{value.name}'")
        if isinstance(argument, NDArray):
            return argument.numpy() if _is_small(argument.dtype, argument.size) else argument.to(CPU)
        array = np.asarray(argument)
        if array.dtype.kind in "OSU":
            return array.astype(np.str_)
        check_dtype(str(array.dtype), f"input '{value.name}'")
        return array if _is_small(str(array.dtype), array.size) else asarray(array)

    def _outputs(self, values: Sequence[Any]) -> tuple[Any, ...]:
        for declared, value in zip(self._program.graph.outputs, values, strict=True):
            check_declared(declared, value, f"output '{declared.name}'")
        return tuple(self._output(name, v) for name, v in zip(self.outputs, values, strict=True))

    def _output(self, name: str, value: Any) -> Any:
        if value is None or isinstance(value, TensorLike):
            return value
        if isinstance(value, list):
            return [self._output(name, v) for v in value]
        if value.dtype.kind == "U":
            return value
        return tensor(value)


def _on(device: Device, value: Any) -> Any:
    if isinstance(value, list):
        return [_on(device, v) for v in value]
    return value.to(device) if isinstance(value, NDArray) else value


def _is_parameter(name: str) -> bool:
    """Whether a function of Python can have a parameter of this name, and IR text a variable."""
    return name.isidentifier() and name.isascii() and not iskeyword(name)


def _is_small(dtype: str, size: Any) -> bool:
    return (dtype.startswith(("int", "uint")) or dtype == "bool") and int(size) <= SMALL


def _single(outputs: tuple[Any, ...]) -> Any:
    return outputs[0] if len(outputs) == 1 else outputs
