"""An ONNX network as a meta Model: run, trained, saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meta import dtype as dtypes
from meta.device import CPU
from meta.dim import Dim
from meta.eager.ndarray import NDArray, asarray
from meta.errors import NotSupportedError
from meta.frontend.onnx.program import OnnxProgram
from meta.frontend.onnx.source import SourceProgram
from meta.frontend.onnx.tensors import read_tensor, tensor_dtype
from meta.frontend.relay.model import MOMENTUM, RelayModel


class OnnxModel(RelayModel):
    """A network read by `meta.frontend.onnx.load`, called with the inputs of its graph, in order.

    Its arrays are the floating initializers that the network computes with, except scalars, by their names
    (`model.state_dict()`). Moving means and variances of batch normalisations are buffers.

    In train mode batch normalisations use the statistics of the batch and move their running statistics by `momentum`.
    With momentum 0, and in infer mode, they use the running statistics, as the file says. Dropout is the identity in
    both modes, as in the file.
    """

    subject = "onnx"

    def build(  # type: ignore[override]  # what a network is read from
        self,
        program: SourceProgram,
        constants: Mapping[str, Any],
        shapes: Mapping[str, Sequence[Dim]],
        momentum: float = MOMENTUM,
    ) -> None:
        arrays = _arrays(program, constants)
        network = OnnxProgram(program, constants, shapes, CPU, arrays)
        traced = network.traced
        if traced.random:
            remedy = "from_onnx gives a program that runs"
            raise NotSupportedError("onnx", "the network draws random numbers", "a network without them", remedy)
        names = {id(array): name for name, array in arrays.items()}
        state = [names[id(array)] for _, array in traced.state]
        values = {name: arrays[name] for name in state}
        super().build(traced.module, (*network.inputs, *state), values, momentum)
        self._result = traced.result

    def _owned(self, array: NDArray) -> NDArray:
        return array  # of `_arrays`

    def _run(self, inputs: Sequence[Any], training: bool) -> Any:
        return self._result.build(iter(super()._run(inputs, training)))


def _arrays(program: SourceProgram, constants: Mapping[str, Any]) -> dict[str, NDArray]:
    """The floating initializers of the graph, except scalars: those are numbers that formulas have."""
    out: dict[str, NDArray] = {}
    for name, value in program.graph.initializers.items():
        where = f"initializer '{name}'"
        if name not in constants and len(value.const_value.shape) and dtypes.is_float(_dtype(value, where)):
            out[name] = asarray(read_tensor(value.const_value, where, program.folder))
    return out


def _dtype(value: Any, where: str) -> str:
    name = tensor_dtype(value.const_value, where)
    return name if name in dtypes.ALL else "bool"
