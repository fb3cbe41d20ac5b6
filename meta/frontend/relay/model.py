"""A Relay network as a meta Model: run, trained, saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import meta
from meta.device import CPU, Device
from meta.dim import Dim, SymDim, compute
from meta.eager.call import invoke, state
from meta.eager.ndarray import NDArray, asarray, copy_of
from meta.errors import ArgumentError, NotSupportedError, did_you_mean
from meta.ir.builder import Module
from meta.ir.expr import Block, Call, Constant, FunctionExpr, If, Tuple, TupleGetItem, Var, operands
from meta.ir.printer import to_array
from meta.ir.type import TensorType
from meta.ir.visitor import walk_blocks
from meta.model.model import Model
from meta.op.registry import Op
from meta.passes.inline_calls import inline_calls
from meta.passes.place import place
from meta.tree import leaves_of, with_leaves

if TYPE_CHECKING:
    from typing_extensions import Self

MOMENTUM = 0.1
"""Weight of the batch in moving statistics in train mode."""


class RelayModel(Model):
    """A network read by `meta.frontend.relay.load`, called with the inputs that are not parameters, in order.

    Its arrays are copies of the parameters, by Relay's names (`model.state_dict()`). Moving means and variances of
    batch normalisations are buffers.

    In train mode batch normalisations use the statistics of the batch and move their running statistics by `momentum`.
    With momentum 0, and in infer mode, they use the running statistics, as Relay does. Dropout is the identity in both
    modes, as in Relay.
    """

    module: Module
    inputs: tuple[str, ...]
    subject = "relay"
    """The format in the errors."""

    def build(
        self, module: Module, names: Sequence[str], values: Mapping[str, Any], momentum: float = MOMENTUM
    ) -> None:
        """module, names: a program and the names of its parameters.  values: of the parameters that become state.

        Raises ArgumentError for values of unknown parameters and for values that do not fit."""
        self.module = inline_calls(module)
        self.momentum = momentum
        self.inputs = tuple(name for name in names if name not in values)
        self._names = tuple(names)
        self._arrays: dict[str, str] = {}
        moving = _moving(self.module.main)
        for name, var in zip(names, self.module.main.params, strict=True):
            if name in values:
                self._add(name, var, values[name], var in moving)
        unknown = [name for name in values if name not in names]
        if unknown:
            raise ArgumentError(
                self.subject,
                f"params has '{unknown[0]}', which is not a parameter of @main",
                f"one of {', '.join(names)}",
                did_you_mean(unknown[0], names),
            )

    def _add(self, name: str, var: Var, value: object, moving: bool) -> None:
        array = self._owned(asarray(value, device=_device(var)))
        if isinstance(var.type, TensorType) and array.type is not var.type:
            raise ArgumentError(self.subject, f"'{name}' is {array.type!r}", f"{var.type!r}")
        is_attribute = hasattr(type(self), name) or name in self.__dict__
        attribute = f"param_{name}" if is_attribute else name
        self._arrays[name] = attribute
        if moving:
            self.buffer(attribute, array)
        else:
            setattr(self, attribute, array)

    def _owned(self, array: NDArray) -> NDArray:
        """An array that shares no memory with others."""
        return copy_of(array)

    def to(self, device: Device | str | None = None, dtype: object = None) -> Self:
        super().to(device, dtype)
        if device is not None:
            self.module = place(device)(self.module)
        return self

    def forward(self, *inputs: object) -> Any:
        """The results of the network for its inputs: a tensor or nested tuples of them."""
        return self._run(inputs, training=self.momentum > 0)

    def forward_infer(self, *inputs: object) -> Any:
        return self._run(inputs, training=False)

    def _run(self, inputs: Sequence[Any], training: bool) -> Any:
        if len(inputs) != len(self.inputs):
            raise ArgumentError(self.subject, f"{len(inputs)} inputs", f"{len(self.inputs)}: {', '.join(self.inputs)}")
        by_name = dict(zip(self.inputs, inputs, strict=True))
        values = [getattr(self, self._arrays[name]) if name in self._arrays else by_name[name] for name in self._names]
        main = self.module.main
        return _Replay(dict(zip(main.params, values, strict=True)), self.momentum if training else 0.0).block(main.body)


def _device(var: Var) -> Device:
    return var.type.device if isinstance(var.type, TensorType) else CPU


def _moving(main: FunctionExpr) -> set[Var]:
    """The parameters that are used as moving statistics of batch normalisations only."""
    used: dict[Var, bool] = {}
    for block in walk_blocks(main):
        for binding in block.bindings:
            value = binding.value
            for i, atom in enumerate(value.args if isinstance(value, Call) else operands(value)):
                if isinstance(atom, Var):
                    statistic = isinstance(value, Call) and value.op_name == "batch_norm_infer" and i in (1, 2)
                    used[atom] = used.get(atom, True) and statistic
    return {var for var, statistic in used.items() if statistic}


class _Replay:
    """Runs a program by public operator calls, which accept arrays and symbols of a trace.

    values: of the parameters of main, whose shapes give the symbolic sizes."""

    def __init__(self, values: dict[Var, Any], momentum: float) -> None:
        self.sizes: dict[str, Dim] = {}
        for var, value in values.items():
            declared = var.type.shape if isinstance(var.type, TensorType) else ()
            sizes_by_name = [(d.name, n) for d, n in zip(declared, value.shape, strict=False) if isinstance(d, SymDim)]
            self.sizes.update((name, n) for name, n in sizes_by_name if name is not None)
        self.values = values
        self.momentum = momentum

    def block(self, block: Block) -> Any:
        for binding in block.bindings:
            self.values[binding.var] = self.value(binding.value)
        if isinstance(block.result, Tuple):
            return tuple(self.argument(f) for f in block.result.fields)
        return self.argument(block.result)

    def value(self, value: Any) -> Any:
        match value:
            case Call(op=Op() as op):
                return self.call(op, [self.argument(a) for a in value.args])
            case Tuple():
                return tuple(self.argument(f) for f in value.fields)
            case TupleGetItem():
                return self.argument(value.value)[value.index]
            case If():
                return self.block(value.then if self.argument(value.cond).item() else value.orelse)
            case _:
                raise NotSupportedError(
                    "relay",
                    "the network has functions that call themselves",
                    "a network without recursion",
                    "from_relay gives a Module that runs and compiles",
                )

    def call(self, op: Op, args: list[Any]) -> Any:
        if op.name == "batch_norm_infer" and self.momentum and self.is_trainable(args):
            x, mean, var, w, b, eps, axis = args
            return meta.batch_norm_train(x, mean, var, w, b, self.momentum, eps, axis)[0]
        return invoke(state(op), *args)

    def is_trainable(self, args: list[Any]) -> bool:
        """Whether a batch normalisation moves its statistics: they are state, and there is more than one element."""
        x, mean, var, *_, axis = args
        elements = [d for i, d in enumerate(x.shape) if i != axis % x.ndim]
        return isinstance(mean, NDArray) and isinstance(var, NDArray) and any(d != 1 for d in elements)

    def argument(self, arg: object) -> Any:
        return with_leaves(arg, [self._leaf(x) for x in leaves_of(arg)])

    def _leaf(self, leaf: object) -> Any:
        if isinstance(leaf, Constant):
            return asarray(to_array(leaf.value), leaf.type.dtype, leaf.type.device)
        if isinstance(leaf, SymDim):
            return compute(leaf, self.sizes.__getitem__, int, lambda a, b: a // b, min)
        return self.values[leaf] if isinstance(leaf, Var) else leaf
