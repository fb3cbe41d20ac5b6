"""The files of a folder: config.json, and the arrays in one or several safetensors files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from meta.dtype import to_numpy
from meta.errors import FileError
from meta.files import safetensors
from meta.files.atomic import opened
from meta.files.into_memory import allocate
from meta.files.strict_json import parse_json
from meta.records import record

_WEIGHTS: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"
Quantizer = Callable[[tuple[int, ...], Callable[[int], Iterator[Any]]], Any]
"""A function of the shape of an array, and of a function that reads it in flat pieces of some size."""
_PICKLED: Final = (".bin", ".pt", ".pth", ".ckpt")


@record
class ModelFolder:
    """A folder whose headers have been read. shapes: of all arrays.  files: name of an array -> its file."""

    path: Path
    config: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    files: Mapping[str, Path]

    def arrays(self, names: Mapping[str, str], quantized: Mapping[str, Quantizer]) -> dict[str, Any]:
        """The values of some arrays: name -> dtype, and the pairs that quantizers make of others. Files are read one
        by one; nothing but the result is kept."""
        out: dict[str, Any] = {}
        for path in sorted(set(self.files.values())):
            with safetensors.reading(path) as tensors, opened(path) as file:
                for name in tensors.dtypes:
                    if name in names:
                        out[name] = allocate(tensors.shapes[name], to_numpy(names[name]))
                        tensors.read_into(name, file, out[name])
                    elif name in quantized:
                        shape = tensors.shapes[name]
                        out[name] = quantized[name](shape, partial(tensors.pieces, name, file))
        return out


def read_folder(folder: str | os.PathLike[str]) -> ModelFolder:
    """The folder with all names and shapes. Raises FileError for files that are missing, damaged or pickled."""
    path = Path(folder)
    config = _json(path / "config.json")
    if not isinstance(config.get("model_type"), str):
        raise FileError("huggingface", f"{path / 'config.json'} has no model_type", "a folder of a Hugging Face model")
    shapes: dict[str, tuple[int, ...]] = {}
    files: dict[str, Path] = {}
    paths, listed = _weight_files(path)
    for file in paths:
        with safetensors.reading(file) as tensors:
            for name, shape in tensors.shapes.items():
                if name in files:
                    raise FileError("huggingface", f"'{name:.60}' is in {files[name].name} and in {file.name}",
                                    "each array in one file")  # fmt: skip
                shapes[name], files[name] = shape, file
    missing = [name for name, file in listed.items() if name not in files or files[name].name != file]
    if missing:
        problem = (
            f"{listed[missing[0]]} in {path} lacks '{missing[0]:.60}', which {_INDEX} names ({len(missing)} in all)"
        )
        raise FileError("huggingface", problem, "files of one checkpoint", "download the folder again")
    return ModelFolder(path, config, shapes, files)


def _weight_files(path: Path) -> tuple[list[Path], Mapping[str, str]]:
    """The files, and the file that each array should be in, as far as an index says."""
    if (path / _WEIGHTS).is_file():
        return [path / _WEIGHTS], {}
    if not (path / _INDEX).is_file():
        pickled = sorted(p.name for p in path.iterdir() if p.suffix in _PICKLED)
        if pickled:
            problem = f"{path} has pickled weights only ({pickled[0]:.60}), which can run code when they are read"
            read = "transformers.AutoModelForCausalLM.from_pretrained(folder)"
            remedy = f"if you trust them, write {read}.save_pretrained(other_folder), and load that"
            raise FileError("huggingface", problem, _WEIGHTS, remedy)
        raise FileError("huggingface", f"{path} has no weights", f"{_WEIGHTS}, or {_INDEX} and its files")
    listed: dict[str, str] = _json(path / _INDEX).get("weight_map") or {}
    if not listed or type(listed) is not dict:
        raise FileError("huggingface", f"{path / _INDEX} has no weight_map", "name of an array -> file")
    names = sorted({str(name) for name in listed.values()})
    for name in names:
        if Path(name).name != name:
            raise FileError("huggingface", f"{_INDEX} names the file {name!r:.80}", "files in the folder itself")
        if not (path / name).is_file():
            raise FileError("huggingface", f"{name} is missing in {path}; {_INDEX} names it", f"{len(names)} files",
                            "download the folder again")  # fmt: skip
    return [path / name for name in names], listed


def _json(path: Path) -> dict[str, Any]:
    with opened(path) as file:
        text = file.read()
    with contextlib.suppress(ValueError):
        value: dict[str, Any] = parse_json(text)
        if type(value) is dict:
            return value
    raise FileError("huggingface", f"{path} is not a JSON object", "a whole file")
