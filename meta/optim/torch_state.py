"""States of torch's optimizers, loaded into optimizers of meta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from meta.eager.ndarray import asarray
from meta.errors import ArgumentError, value_text

if TYPE_CHECKING:
    from meta.eager.ndarray import NDArray
    from meta.optim.group import ParamGroup

_WHERE: Final = "load_torch_state_dict"
TORCH_SLOTS: Final[Mapping[str, tuple[str, ...]]] = {
    "m": ("exp_avg", "momentum_buffer"), "v": ("exp_avg_sq",), "v_max": ("max_exp_avg_sq",),
    "velocity": ("momentum_buffer",), "square_mean": ("square_avg", "variance"), "mean": ("grad_avg",),
    "sum": ("sum",), "row": ("row_var",), "column": ("col_var",), "mu_product": ("mu_product",),
}  # fmt: skip
"""Slot -> its names in the states of torch's optimizers."""


def planned(
    own: Mapping[str, NDArray], groups: Sequence[ParamGroup], state: Mapping[str, Any]
) -> tuple[dict[str, Any], list[dict[str, float]]]:
    """The state of a torch optimizer as a new value of `own`, an optimizer's `state_dict`, and hyperparameters of each
    group. Parameters are matched by their order in the groups. Raises ArgumentError for what does not fit."""
    if not isinstance(state, Mapping) or not {"state", "param_groups"} <= set(state):
        raise ArgumentError(_WHERE, f"the state is {value_text(state)}", "what torch's optimizer.state_dict() returns")
    pairs = cast("Sequence[Mapping[str, Any]]", state["param_groups"])
    sizes = [len(group["params"]) for group in pairs], [len(group.named) for group in groups]
    if sizes[0] != sizes[1]:
        raise ArgumentError(_WHERE, f"groups of {sizes[0]} parameters", f"{sizes[1]}, as in the optimizer")
    values: dict[str, Any] = {}
    for theirs, group in zip(pairs, groups, strict=True):
        for key, (name, _) in zip(theirs["params"], group.named, strict=True):
            _add_parameter(values, own, name, state["state"].get(key, {}))
    return {**own, **values}, [_numbers(theirs, group) for theirs, group in zip(pairs, groups, strict=True)]


def _add_parameter(values: dict[str, Any], own: Mapping[str, NDArray], name: str, theirs: Mapping[str, Any]) -> None:
    for path, x in own.items():
        slot = path.removeprefix(f"{name}.")
        if slot == path or slot not in (*TORCH_SLOTS, "step"):
            continue
        names = TORCH_SLOTS.get(slot, ("step",))
        found = next((theirs[n] for n in names if theirs.get(n) is not None), None)
        if found is None:
            continue  # a parameter without an update, or an SGD without momentum
        value = asarray(found).detach()
        if value.shape != x.shape:
            raise ArgumentError(_WHERE, f"'{names[0]}' of {name} has shape {value.shape}", f"{x.shape}")
        values[path] = value.cast(x.dtype).to(device=x.device)


def _numbers(theirs: Mapping[str, Any], group: ParamGroup) -> dict[str, float]:
    """The hyperparameters of a group that both sides have."""
    named = {("learning_rate" if name == "lr" else name): value for name, value in theirs.items()}
    pair = named.pop("betas", None)
    if pair is not None:
        named["beta1"], named["beta2"] = pair
    named["rate_decay"] = named.get("lr_decay")
    return {name: float(value) for name, value in named.items() if name in group.numbers and value is not None}
