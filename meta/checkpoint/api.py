"""`meta.save` and `meta.load`."""

from __future__ import annotations

import os
from typing import Any, Final

from meta.checkpoint.named_arrays import Encoder, decode, is_flat, to_json
from meta.checkpoint.restore import Restorer
from meta.device import CPU, Device
from meta.eager.ndarray import asarray
from meta.errors import TraceError
from meta.files import safetensors
from meta.files.atomic import check_path
from meta.modes import modes
from meta.schema.annotations import explained

_NEST: Final = "meta.nest"


@explained
def save(path: str | os.PathLike[str], value: object) -> None:
    """Write a model, or a nest of models, optimizers, arrays and plain values, to a file in the safetensors format.

        meta.save("model.safetensors", model)
        meta.save("run.safetensors", {"model": model, "optimizer": optimizer,
                                      "random": meta.random.default_generator, "step": step})

    value: a Model, an optimizer, a training step, compiled or not, a GradScaler, a random Generator or anything else
        with `state_dict` and `load_state_dict`; arrays; numbers, strings and None; tuples, lists and dicts of them.
    A model is stored as its arrays by name, which other readers of the format understand. Names in a nest are paths,
    such as `model.hidden.w`. Plain values and the structure are JSON text in the file.

    The file replaces one that is there when it is complete and on the disk; if that fails, the old one stays.
    Raises FileError when the file cannot be written, ArgumentError for a value that cannot be saved, TraceError in a
    traced function."""
    check_path("save", path, "the path comes first: meta.save(path, value)")
    _refuse_trace("save")
    encoder = Encoder()
    nest = encoder.encode(value)
    arrays = encoder.arrays
    entries = [safetensors.array_entry(n, x) for n, x in arrays.items()]
    metadata = {"format": "meta"} if is_flat(nest) else {"format": "meta", _NEST: to_json(nest)}
    safetensors.write(path, entries, metadata)


@explained
def load(path: str | os.PathLike[str], into: object = None, *, strict: bool = True, device: Device | str = CPU) -> Any:
    """Read a file of `save`, or any other file in the safetensors format.

        meta.load("model.safetensors", model)
        step = meta.load("run.safetensors", {"model": model, "optimizer": optimizer,
                                             "random": meta.random.default_generator, "step": 0})["step"]

    into: what to load into: a nest like the saved one. Models, optimizers and arrays in it keep their memory and get
        the saved values; plain values come back in the result, which has the form of `into`. Without it, the result
        is the saved nest, with a dict of arrays (on `device`) for each object.
    strict: names must be the same in the file and in `into`. With False, what only one of them has is left alone; the
        shapes and dtypes of the others must be the same in any case, and some name must match. This holds for models,
        optimizers, schedules, training steps and objects whose `load_state_dict` has a parameter `strict`; others, such
        as a GradScaler, take whole states.

    Nothing in the file is executed, and memory is bounded by its length. Names and types are checked before anything is
    written.
    Raises FileError for a file that cannot be read, is damaged or does not fit, TraceError in a traced function."""
    check_path("load", path, "the path comes first: meta.load(path, into)")
    _refuse_trace("load")
    with safetensors.reading(path) as file:
        arrays = {name: asarray(file.array(name), device=device, copy=True) for name in file.dtypes}
        text = file.metadata.get(_NEST)
    saved: Any = arrays if text is None else decode(text, arrays, file.path)
    if into is None:
        return saved
    restorer = Restorer(file.path, strict, [])
    result = restorer.plan(into, saved)
    restorer.write()
    return result


def _refuse_trace(name: str) -> None:
    if modes.trace is not None:
        raise TraceError(name, "a file is used while tracing", "files that are read and written outside",
                         f"call {name} outside of the traced function")  # fmt: skip
