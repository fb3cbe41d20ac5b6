"""`ptq` and `qat`: models in 8-bit integers, after training or by training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from meta.errors import ArgumentError, value_text
from meta.model.model import Model
from meta.modes import no_grad
from meta.nn.conv import Conv1d, Conv2d, Conv3d
from meta.nn.linear import Linear
from meta.quantize.layers import Calibrated, FakeQuantized, QuantizedLayer
from meta.quantize.ranges import Range
from meta.tree import flatten, is_tuple

_LAYERS = (Linear, Conv1d, Conv2d, Conv3d)


def ptq(model: Model, batches: Iterable[Any], *, percentile: float = 100.0, skip: Sequence[str] = ()) -> Any:
    """Round a trained model to 8-bit integers, by the ranges of its layers' inputs on some batches. Returns the model,
    changed in place, in inference mode; a model that is itself a linear layer or convolution is replaced.

    batches: inputs of the model, each an array, or a tuple of arguments.
    percentile: 100 for the least and the largest value of all batches; less, such as 99.9, for the mean of the batches'
        percentiles, which leaves out rare values.
    skip: names of layers that stay as they are, such as the last one.
    Raises ArgumentError for no batches, values that are not finite, and names that no layer has; the model is then as
    before."""
    if not 50 < percentile <= 100:
        raise ArgumentError("ptq", f"percentile is {value_text(percentile)}", "more than 50, at most 100")
    layers, modes = _layers("ptq", model, skip), [(part, part.training) for _, part in model.models()]
    rate = None if percentile == 100 else 0.0
    calibrated = {name: Calibrated(layer, Range(percentile, rate)) for name, layer in layers.items()}
    changed = _replaced(model, {id(c.layer): c for c in calibrated.values()})
    try:
        changed.infer_mode()
        _run(changed, batches)
        _check("ptq", calibrated)
    except BaseException:
        _replaced(changed, {id(c): c.layer for c in calibrated.values()})
        for part, training in modes:
            part.training = training
        raise
    return convert(changed)


def _run(model: Model, batches: Iterable[Any]) -> None:
    count = 0
    with no_grad():
        for batch in batches:
            model(*(batch if is_tuple(batch) else (batch,)))
            count += 1
    if not count:
        raise ArgumentError("ptq", "there are no batches", "inputs of the model, which calibrate it",
                            "pass a list: a generator that has run has no more")  # fmt: skip


def qat(model: Model, *, skip: Sequence[str] = ()) -> Any:
    """Put layers whose inputs and weights are rounded to 8 bits in place of linear layers and convolutions, so that
    training adapts the weights; `convert` then makes them integers. Returns the model, changed in place, in train mode.

    The ranges of inputs are means over the last training steps. skip: as in `ptq`."""
    layers = _layers("qat", model, skip)
    new = {id(layer): FakeQuantized(layer, Range(rate=0.01)) for layer in layers.values()}
    return _replaced(model, new).train_mode()


def convert(model: Model) -> Any:
    """Make the weights of calibrated or trained layers integers. Returns the model, changed in place, in inference
    mode. Layers that no batch has reached become floats again.

    Raises ArgumentError if no layer has a range, or a range or weight is not finite; nothing has changed then."""
    calibrated = {name: part for name, part in model.models() if isinstance(part, Calibrated)}
    _check("convert", calibrated)
    new = {id(c): c.converted() if c.range.batches.item() else c.layer for c in calibrated.values()}
    return _replaced(model, new).infer_mode()


def _check(subject: str, calibrated: Mapping[str, Calibrated]) -> None:
    """Raise ArgumentError unless some layer has a range, and ranges and weights are finite."""
    if not any(c.range.batches.item() for c in calibrated.values()):
        raise ArgumentError(subject, "no linear layer or convolution has seen data", "at least one batch",
                            "call the model on batches in train mode, or use meta.quantize.ptq")  # fmt: skip
    for name, layer in calibrated.items():
        low, high = layer.range.low.item(), layer.range.high.item()
        if not np.isfinite([low, high]).all():
            raise ArgumentError(subject, f"inputs of '{name}' range from {low} to {high}", "finite values")
        w: Any = layer.layer.w.numpy()
        if not np.isfinite(w).all():
            raise ArgumentError(subject, f"'{name}' has NaN or infinite weights", "finite ones")


def _layers(subject: str, model: Model, skip: Sequence[str]) -> dict[str, Any]:
    """The layers to round, by name. Raises ArgumentError if there are none, or a name in `skip` is unknown."""
    inside = {id(part.layer) for _, part in model.models() if isinstance(part, (Calibrated, QuantizedLayer))}
    layers = {name: part for name, part in model.named_models() if isinstance(part, _LAYERS) and id(part) not in inside}
    unknown = [name for name in skip if name not in layers]
    if unknown:
        problem, names = f"skip has {unknown[0]!r:.60}", ", ".join(layers) or "none"
        raise ArgumentError(subject, problem, f"names of linear layers and convolutions: {names}")
    chosen = {name: layer for name, layer in layers.items() if name not in skip}
    if not chosen:
        problem = "all layers are rounded already" if inside else "there is no layer to round"
        raise ArgumentError(subject, problem, "a model with linear layers or convolutions in floats")
    return chosen


def _replaced(model: Model, new: Mapping[int, Any]) -> Any:
    """The model with other sub-models, by the ids of the old ones, also in its lists and dicts."""
    for _, part in list(model.models()):
        for name, value in list(vars(part).items()):
            children, tree = flatten(value, Model)
            if any(id(child) in new for _, child in children):
                setattr(part, name, tree.build(iter([new.get(id(child), child) for _, child in children])))
    return new.get(id(model), model)
