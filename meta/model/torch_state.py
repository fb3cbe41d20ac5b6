"""State dicts of torch, loaded by name into models of meta."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from meta.dtype import is_float
from meta.eager.named_state import Unmatched, refuse_names, without_gradients
from meta.eager.ndarray import NDArray, array, asarray
from meta.errors import ArgumentError
from meta.model.names import NamedArrays, torch_arrays, torch_vectors, unused_names
from meta.modes import no_grad

_WHERE = "load_torch_state_dict"
_REMEDY = "rename maps other names, and strict=False loads what both have"


def load_torch_state_dict(
    model: NamedArrays, state: Mapping[str, Any], strict: bool, rename: Callable[[str], str | None] | None
) -> Unmatched:
    """See Model.load_torch_state_dict."""
    entries = _renamed(_checked(state), rename)
    arrays, unused = torch_arrays(model), unused_names(model)
    unknown = [name for name in entries if name not in arrays and name not in unused]
    reached = {id(arrays[name]) for name in entries if name in arrays}
    missing = [name for name, x in arrays.items() if id(x) not in reached]
    if strict and (unknown or missing):
        refuse_names(_WHERE, Unmatched(missing, unknown), arrays, "the model", _REMEDY)
    loaded = [(arrays[name], _fitted(name, value, arrays[name])) for name, value in entries.items() if name in arrays]
    with no_grad():
        for x, value in loaded:
            x.update(value)
    return Unmatched(missing, unknown)


def torch_state(model: NamedArrays) -> dict[str, NDArray]:
    """See Model.torch_state_dict. Entries that the model has no use for, which count batches in torch, are 0."""
    vectors = torch_vectors(model)
    arrays = {name: x.detach().reshape((-1,)) if id(x) in vectors else x for name, x in torch_arrays(model).items()}
    counters = {name: array(0, dtype="int64") for name in sorted(unused_names(model))}
    return without_gradients({**counters, **arrays}.items())


def _checked(state: object) -> Mapping[str, Any]:
    """`state`; raises ArgumentError unless it maps names to tensors."""
    expected = "a mapping of names to tensors"
    if not isinstance(state, Mapping):
        remedy = "pass module.state_dict()" if hasattr(state, "state_dict") else ""
        raise ArgumentError(_WHERE, f"the state is {type(state).__name__}", expected, remedy)
    entries: Mapping[str, Any] = state  # pyright: ignore[reportUnknownVariableType]
    for name, value in entries.items():
        if not hasattr(value, "shape"):
            inner = next((key for key, each in entries.items() if isinstance(each, Mapping)), None)
            remedy = f"pass state[{inner!r}]" if inner is not None else "leave it out with rename"
            raise ArgumentError(_WHERE, f"the entry {name!r} is {type(value).__name__}", expected, remedy)
    return entries


def _renamed(state: Mapping[str, Any], rename: Callable[[str], str | None] | None) -> dict[str, Any]:
    if rename is None:
        return dict(state)
    out: dict[str, Any] = {}
    for name, value in state.items():
        new = rename(name)
        if new in out:
            raise ArgumentError(_WHERE, f"rename gives {new!r} twice, the second time for {name!r}", "different names")
        if new is not None:
            out[new] = value
    return out


def _fitted(name: str, value: object, target: NDArray) -> NDArray:
    """The value with the dtype, device and shape of `target`, whose shape may have further axes of size 1."""
    source = asarray(value).detach()
    if source.shape != target.shape and (*source.shape, *(1,) * (target.ndim - source.ndim)) != target.shape:
        raise ArgumentError(_WHERE, f"{name!r} has shape {source.shape}", f"{target.shape}, as in the model")
    if is_float(source.dtype) != is_float(target.dtype):
        raise ArgumentError(_WHERE, f"{name!r} is {source.dtype}", f"{target.dtype}, as in the model")
    with no_grad():
        return source.to(target.device, target.dtype).reshape(target.shape)
