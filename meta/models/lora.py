"""Low-rank adapters of projections (E. Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021).

A projection becomes base(x) + (alpha / rank) * (x @ a^T) @ b^T, where only a, (rank, in), and b, (out, rank), are
trained. The base may have weights in 8 or 4 bits. b begins as zeros, so that the model computes as before."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import meta
from meta import random
from meta._generated.methods import Tensor
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, FileError, value_text
from meta.files import safetensors
from meta.files.atomic import temporary
from meta.model.model import Model
from meta.model.names import torch_arrays
from meta.models.blocks import PretrainedModel, Projection, TransposedProjection
from meta.models.quantized import QuantizedProjection
from meta.modes import no_grad
from meta.nn.init import fan_in_bound
from meta.schema.annotations import explained

if TYPE_CHECKING:
    from typing_extensions import Self

_BASES: Final = (Projection, TransposedProjection, QuantizedProjection)
_PREFIX: Final = "base_model.model."
"""Of names in peft's files."""
_WEIGHTS: Final = "adapter_model.safetensors"
_CONFIG: Final = "adapter_config.json"


class LowRank(Model):
    """A projection with a low-rank sum beside it. a is uniform in +-1/sqrt(in), b zeros."""

    _torch_names: ClassVar[Mapping[str, str]] = {"a": "lora_A.weight", "b": "lora_B.weight", "base": ""}

    def build(self, base: Any, rank: int, alpha: float) -> None:
        self.base, self.rank, self.scaling = base, rank, alpha / rank
        outputs, inputs = _sizes(base)
        kind = base.scale.dtype if isinstance(base, QuantizedProjection) else base.w.dtype
        bound = fan_in_bound(inputs)
        self.a = random.uniform((rank, inputs), -bound, bound).cast(kind).to(base.w.device)
        self.b = meta.zeros((outputs, rank), kind, base.w.device)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + meta.dense(meta.dense(x, self.a), self.b) * self.scaling


def _sizes(base: Any) -> tuple[int, int]:
    """Outputs and inputs of a projection."""
    if isinstance(base, TransposedProjection):
        return base.w.shape[1], base.w.shape[0]
    return base.w.shape[0], base.w.shape[1] * (2 if base.w.dtype == "uint8" else 1)


def add_adapters(model: Model, rank: int, alpha: float | None, targets: Sequence[str]) -> None:
    """Put adapters beside the projections with these names, and freeze all other parameters. Raises ArgumentError for
    names that no projection has, a model that has adapters, and ranks and alphas that are not positive."""
    if rank < 1 or (alpha is not None and not 0 < alpha < math.inf):
        problem = f"rank is {value_text(rank)}, alpha {value_text(alpha)}"
        raise ArgumentError("lora", problem, "an int of at least 1, and a positive number")
    if any(True for _ in adapters(model)):
        raise ArgumentError("lora", "the model has adapters", "one call", "merge them first: lm.merge_lora()")
    places = [(part, name) for _, part in model.models() for name, layer in vars(part).items()
              if isinstance(layer, _BASES)]  # fmt: skip
    known = {name for _, name in places}
    unknown = [name for name in targets if name not in known]
    if unknown or not targets:
        problem = f"targets has {unknown[0]!r:.60}" if unknown else "targets is empty"
        raise ArgumentError("lora", problem, f"names of projections: {', '.join(sorted(known))}")
    for x in model.parameters():
        x.requires_grad = False
    for part, name in places:
        if name in targets:
            setattr(part, name, LowRank(getattr(part, name), rank, float(alpha or rank)))
    model.train_mode()


def adapters(model: Model) -> Iterator[tuple[Model, str, LowRank]]:
    """The adapters, each with the part that has it and its name there."""
    for _, part in list(model.models()):
        for name, layer in list(vars(part).items()):
            if isinstance(layer, LowRank):
                yield part, name, layer


def merge_adapters(model: Model) -> None:
    """Add the adapters to the weights of their bases and remove them. Raises ArgumentError, before anything changes,
    for weights in 8 or 4 bits and a model without adapters."""
    found = list(adapters(model))
    if not found:
        raise ArgumentError("merge_lora", "the model has no adapters", "a model after lora()")
    if any(isinstance(layer.base, QuantizedProjection) for _, _, layer in found):
        remedy = "save the adapters, load the folder without weights=, and load_lora there"
        raise ArgumentError("merge_lora", "the weights have 8 or 4 bits", "floating weights", remedy)
    for part, name, layer in found:
        with no_grad():
            change = meta.matmul(layer.b, layer.a) * layer.scaling
            layer.base.w.update(layer.base.w + (change.T if isinstance(layer.base, TransposedProjection) else change))
        setattr(part, name, layer.base)


def _arrays(model: Model) -> dict[str, NDArray]:
    """The trained arrays by peft's names."""
    return {f"{_PREFIX}{name}": x for name, x in torch_arrays(model).items() if ".lora_" in name}


def save_adapters(folder: str | os.PathLike[str], model: PretrainedModel) -> None:
    """Write the adapters alone to a folder, as peft reads it: adapter_config.json and adapter_model.safetensors."""
    found = list(adapters(model))
    if not found:
        raise ArgumentError("save_lora", "the model has no adapters", "a model after lora()")
    _, _, first = found[0]
    entries = {
        "peft_type": "LORA", "r": first.rank, "lora_alpha": first.scaling * first.rank, "lora_dropout": 0.0,
        "target_modules": sorted({name for _, name, _ in found}), "bias": "none", "task_type": model.lora_task,
        "fan_in_fan_out": isinstance(first.base, TransposedProjection), "inference_mode": True,
    }  # fmt: skip
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    entry = safetensors.array_entry
    safetensors.write(path / _WEIGHTS, [entry(n, x) for n, x in _arrays(model).items()], {"format": "pt"})
    with temporary(path / _CONFIG) as name, open(name, "w", encoding="utf-8") as file:
        json.dump(entries, file, indent=2)


def load_adapters(folder: str | os.PathLike[str], model: Model) -> None:
    """Copy the adapters of a folder, written by `save_adapters` or peft, into the adapters of the model. Raises
    FileError for other names or shapes, before anything changes."""
    arrays = _arrays(model)
    with safetensors.reading(Path(folder) / _WEIGHTS) as tensors:
        given = tensors.shapes
        wrong = next((n for n in (*arrays, *given) if n not in given or n not in arrays
                      or given[n] != arrays[n].shape), None)  # fmt: skip
        if wrong is not None:
            own = arrays[wrong].shape if wrong in arrays else "no array"
            problem = f"'{wrong:.120}' is {given.get(wrong, 'missing')} in {folder}, and {own} in the model"
            remedy = f"call lora() with the rank, alpha and targets in {_CONFIG}"
            raise FileError("load_lora", problem, "the adapters of the model", remedy)
        values = {name: tensors.array(name) for name in arrays}
    with no_grad():
        for name, x in arrays.items():
            x.update(meta.array(values[name], x.dtype, x.device))


class AdaptableModel(PretrainedModel):
    """A model whose projections may have adapters."""

    @explained
    def lora(self, rank: int = 8, alpha: float | None = None, targets: Sequence[str] | None = None) -> Self:
        """Put low-rank adapters beside projections, freeze everything else, and return the model in train mode.

        A projection adds (alpha / rank) * (x @ a^T) @ b^T to its result; a and b are its trained parts.
        alpha: `rank` by default.  targets: names of projections, by default the projections of queries and values.
        Weights may have 8 or 4 bits. Raises ArgumentError for numbers that are not positive and names that no
        projection has."""
        add_adapters(self, rank, alpha, self.lora_targets if targets is None else targets)
        return self

    def merge_lora(self) -> Self:
        """Add the adapters to the weights, which must be floats, and remove them; returns the model, still frozen."""
        merge_adapters(self)
        return self

    def save_lora(self, folder: str | os.PathLike[str]) -> None:
        """Write the adapters alone, for `load_lora` and peft."""
        save_adapters(folder, self)

    def load_lora(self, folder: str | os.PathLike[str]) -> Self:
        """Copy the adapters of a folder, as `save_lora` and peft write it, into those that `lora` made."""
        load_adapters(folder, self)
        return self
