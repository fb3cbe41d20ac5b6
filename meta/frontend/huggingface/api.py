"""`load`, `examine` and `save`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from meta.device import CPU, Device
from meta.dtype import canonical, is_float
from meta.eager.ndarray import NDArray, from_numpy
from meta.errors import ArgumentError, FileError, NotSupportedError
from meta.files import safetensors
from meta.files.atomic import temporary
from meta.frontend.examination import (
    Examination,
    OperatorUse,
    UnsupportedProgramError,
    operator_uses,
    problem_text,
)
from meta.frontend.huggingface.folder import ModelFolder, read_folder
from meta.frontend.quantized import scale_problem
from meta.model.names import torch_arrays
from meta.models.bert import Bert
from meta.models.blocks import ACTIVATIONS, PretrainedModel
from meta.models.gpt2 import GPT2
from meta.models.llama import VARIANTS, Llama
from meta.models.quantized import QuantizedWeight, WeightFormat, replace_layers, weight_format
from meta.models.t5 import T5
from meta.records import record
from meta.schema.annotations import explained
from meta.tree import is_dict

_SUPPORTED: Final[Mapping[str, type[PretrainedModel]]] = {
    **dict.fromkeys(VARIANTS, Llama),
    "gpt2": GPT2,
    "bert": Bert,
    "t5": T5,
}
"""By model_type."""
_ONLY: Final[Mapping[str, Any]] = {
    "add_cross_attention": False, "partial_rotary_factor": 1.0, "position_embedding_type": "absolute",
    "quantization_config": None, "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True,
    "use_bidirectional_attention": False,
}  # fmt: skip
"""Entries of config.json, each with its one supported value besides null."""
_DERIVED: Final = re.compile(
    r"\.attn\.(masked_)?bias$|rotary_emb\.inv_freq$|embeddings\.position_ids$|^(en|de)coder\.embed_tokens\."
)
"""Arrays of older checkpoints that are computed from config.json, or have another name as well."""
_HEADS: Final = {"bert": re.compile(r"(bert\.)?pooler\.|cls\.|classifier\.|qa_outputs\.")}
"""model_type -> arrays behind the features of an encoder, which are not read."""
_NUMBER: Final = re.compile(r"\.\d+(?=\.)")
_METHOD: Final = "meta"
"""quant_method in config.json of weights that `save` wrote."""
_SHOWN: Final = 20
"""Mismatches that an error lists."""
_GUIDE: Final = "docs/language-models.md lists the supported architectures"


class UnsupportedError(UnsupportedProgramError):
    """A model that can be read, but has parts that meta lacks."""


@explained
def load(
    folder: str | os.PathLike[str], dtype: object = None, device: Device | str = CPU, weights: str | None = None
) -> PretrainedModel:
    """The language model of a folder with config.json and safetensors files, in inference mode.

        lm = meta.frontend.huggingface.load("Qwen2.5-0.5B-Instruct", dtype="bfloat16")
        tokens = lm.generate(ids, max_tokens=100)

    dtype: floating; None for the dtype of config.json. Files are read one by one and values are cast on the way, so
        that memory is little more than the result's.
    weights: None as they are; "int8", or "int4:64" for 4 bits in groups of 64, to round matrices, the head and the
        table of tokens included, while they are read (`meta.models.quantized`). They are not trained, `dtype` is of
        everything else, and `save` writes them for `load`, not for transformers.
    `lm.config` has the entries of config.json. Nothing in the folder is executed.
    Raises UnsupportedError for an architecture, or a choice in config.json, that meta lacks, FileError for files that
    are missing, damaged, pickled or of other shapes than config.json says, ArgumentError for unknown `weights`, groups
    that do not divide the rows, or a folder whose weights are rounded already."""
    source = read_folder(folder)
    wanted = None if weights is None else weight_format(weights)
    given = _stored_format(source.config)
    if wanted is not None and given is not None and wanted != given:
        raise ArgumentError("huggingface", f"weights is {weights!r}, and {source.path} has weights in {given}",
                            "None", "load the folder that they were made from")  # fmt: skip
    target = canonical(dtype or source.config.get("dtype") or source.config.get("torch_dtype") or "float32")
    if not is_float(target):
        raise ArgumentError("huggingface", f"dtype is {target}", "a floating dtype")
    found = _compared(source)
    if found.unsupported or found.model is None:
        missing = ", ".join(use.name for use in found.uses if not use.supported)
        nearest = source.config["model_type"] if source.config["model_type"] in _SUPPORTED else "llama"
        problem = found.unsupported[0] + (f"; the model of {nearest} lacks {missing}" if missing else "")
        raise UnsupportedError("huggingface", problem, remedy=_GUIDE, problems=found.unsupported[1:])
    if found.mismatches:
        raise FileError("huggingface", f"{source.path}: {found.mismatches[0]}", "the arrays that config.json describes",
                        details="\n".join(found.mismatches[1:_SHOWN]))  # fmt: skip
    made: dict[int, QuantizedWeight] = {}
    if wanted is not None and given is None:
        made = replace_layers(found.model, wanted, target)
        found.model.config["quantization_config"] = {"quant_method": _METHOD, "weights": str(wanted)}
    _fill(source, found, made, target, device)
    return found.model.infer_mode()


def _fill(
    source: ModelFolder, found: _Comparison, made: Mapping[int, QuantizedWeight], dtype: str, device: Device | str
) -> None:
    """Give the model the values of the files. made: by ids of arrays, what is rounded on the way."""
    assert found.model is not None
    quantizers = {name: made[id(array)] for name, array in found.arrays.items() if id(array) in made}
    plain = {n: dtype if is_float(x.dtype) else x.dtype for n, x in found.arrays.items() if n not in quantizers}
    host = source.arrays(plain, quantizers)
    arrays: dict[int, NDArray] = {}
    for name, array in found.arrays.items():
        values = host.pop(name)
        if name.endswith(".weight_scale") and (problem := scale_problem(name, values)) is not None:
            raise FileError("huggingface", f"{source.path}: {problem}", "positive finite scales")
        weight = quantizers.get(name)
        pairs = [(array, values)] if weight is None else zip((weight.w, weight.scale), values, strict=True)
        arrays.update({id(old): from_numpy(new).to(device) for old, new in pairs})
    for _, part in found.model.models():
        for name, value in list(part._direct_arrays()):
            setattr(part, name, arrays[id(value)])


def _stored_format(config: Mapping[str, Any]) -> WeightFormat | None:
    """The format of the weights of a folder that `save` wrote; None for floats."""
    entry: Any = config.get("quantization_config")
    is_ours = is_dict(entry) and entry.get("quant_method") == _METHOD
    return weight_format(entry.get("weights")) if is_ours else None


@explained
def examine(folder: str | os.PathLike[str]) -> Examination:
    """What of a model `load` supports, without its weights: kinds of parameters as operators, and other problems.

    For an unknown architecture, parameters are compared with Llama's. Raises FileError as `load` does."""
    source = read_folder(folder)
    found = _compared(source)
    problems = (*found.unsupported, *found.mismatches)
    return Examination(f"{source.config['model_type']} in {source.path}", found.uses, problems)


@explained
def save(folder: str | os.PathLike[str], model: PretrainedModel) -> None:
    """Write a model that was loaded, also after training, to a folder that `load` and transformers read: config.json
    and model.safetensors. Weights in 8 or 4 bits are written as they are, which only `load` reads. Raises FileError
    when a file cannot be written."""
    dtype = model.dtype
    entries = {name: value for name, value in model.config.items() if name != "torch_dtype"} | {"dtype": dtype}
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    arrays = [safetensors.array_entry(name, array) for name, array in _distinct(model).items()]
    safetensors.write(path / "model.safetensors", arrays, {"format": "pt"})
    with temporary(path / "config.json") as name, open(name, "w", encoding="utf-8") as file:
        json.dump(entries, file, indent=2)


def _distinct(model: PretrainedModel) -> dict[str, NDArray]:
    """The arrays by their first names in torch."""
    first = {id(array): name for name, array in reversed(torch_arrays(model).items())}
    return {name: array for name, array in torch_arrays(model).items() if first[id(array)] == name}


@record
class _Comparison:
    """A folder beside the model that its config.json describes.

    model: without weights, None if there is none.  arrays: names in the files -> arrays of the model.
    uses: the kinds of parameters in the files, as operators.
    unsupported: what meta lacks.  mismatches: arrays that are missing or have other shapes."""

    model: PretrainedModel | None
    arrays: Mapping[str, NDArray]
    uses: tuple[OperatorUse, ...]
    unsupported: tuple[str, ...]
    mismatches: tuple[str, ...]


def _compared(source: ModelFolder) -> _Comparison:
    kind = source.config["model_type"]
    unsupported = [] if kind in _SUPPORTED else [f"model_type is {kind!r:.60}, not one of {', '.join(_SUPPORTED)}"]
    choices = list(_unsupported_choices(source.config))
    unsupported += choices
    model = None
    try:
        model = None if choices else _model(source)
    except NotSupportedError as error:
        unsupported.append(problem_text(error))
    except (KeyError, TypeError, ValueError, ArithmeticError, IndexError, MemoryError) as error:
        if kind in _SUPPORTED:
            text = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            unsupported.append(f"config.json describes no model: {text:.200}")
    arrays: dict[str, NDArray] = {}
    mismatches: list[str] = []
    for name, array in ({} if model is None else _distinct(model)).items():
        # Checkpoints of the model without its head have names without the first part.
        stored = name if name in source.shapes else name.partition(".")[2]
        if stored not in source.shapes:
            mismatches.append(f"'{name}' is missing")
        elif source.shapes[stored] != array.shape:
            mismatches.append(f"'{stored}' has shape {source.shapes[stored]}, config.json says {array.shape}")
        else:
            arrays[stored] = array
    others = () if model is None else torch_arrays(model)  # a second name of a tied array
    places: dict[str, list[str]] = {}
    for name in source.shapes:
        if not _DERIVED.search(name) and not (kind in _HEADS and _HEADS[kind].match(name)):
            places.setdefault(_NUMBER.sub(".*", name), []).append(name)
    wrong = {kind for kind, names in places.items() if model and not all(n in arrays or n in others for n in names)}
    wrong -= {_NUMBER.sub(".*", text.split("'")[1]) for text in mismatches}
    if kind in _SUPPORTED and wrong and not unsupported:
        unsupported.append("the files have parameters that config.json does not describe")
    uses = operator_uses({_NUMBER.sub(".*", k): v for k, v in places.items()}, places.keys() - wrong)
    return _Comparison(model, arrays, uses, tuple(unsupported), tuple(mismatches) if kind in _SUPPORTED else ())


def _model(source: ModelFolder) -> PretrainedModel:
    """The model of config.json; of Llama's architecture if the type is unknown."""
    entries = dict(source.config)
    if entries["model_type"] not in _SUPPORTED:
        entries["model_type"] = "llama"
    layers = entries.get("num_hidden_layers", entries.get("n_layer", 0))
    if layers > len(source.shapes):
        raise ValueError(f"it has {layers} layers, and the files {len(source.shapes)} arrays")
    model = _SUPPORTED[entries["model_type"]](entries)
    stored = _stored_format(entries)
    if stored is not None:
        replace_layers(model, stored, "float32")
    return model


def _unsupported_choices(config: Mapping[str, Any]) -> Iterator[str]:
    """The entries of config.json with values that no model here has."""
    for name, value in _ONLY.items():
        is_ours = name == "quantization_config" and _stored_format(config) is not None
        if config.get(name) not in (None, value) and not is_ours:
            yield f"{name} is {config[name]!r:.60}; expected {value!r}"
    for name in ("hidden_act", "hidden_activation", "activation_function"):
        if config.get(name) is not None and config[name] not in tuple(ACTIVATIONS):
            yield f"{name} is {config[name]!r:.60}; expected one of {', '.join(ACTIVATIONS)}"
