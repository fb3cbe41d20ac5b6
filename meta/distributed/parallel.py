"""Tensor parallelism of training steps (M. Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language
Models Using Model Parallelism", 2019), for any model and any division of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import meta
from meta import tracing
from meta.distributed.exchanges import Exchange, add_exchange, check_step, exchanges, read_only, written_parameter
from meta.distributed.gradients import broadcast_state
from meta.distributed.mesh import Group, GroupLike, as_group
from meta.distributed.sharding import ShardedParameters, ShardedState, places
from meta.distributed.tensor.parameters import ParameterPart, matched
from meta.distributed.tensor.partition import partition_pass
from meta.distributed.tensor.placement import Sharded
from meta.errors import NotSupportedError
from meta.model.model import Model
from meta.modes import no_grad
from meta.optim.train_step import TrainStep
from meta.random.generator import default_generator


def tensor_parallel(
    plan: Mapping[str, Sharded], mesh: GroupLike = None, *, broadcast: bool = True
) -> Callable[[TrainStep], TrainStep]:
    """`tensor_parallel({"layers.*.first.w": shard(0), "layers.*.last.w": shard(1)}, mesh["tp"])(step)`: every rank
    keeps parts of parameters and computes with them. All ranks of the group get the same batch.

    plan: pattern of parameters' names (`*` matches anything) -> `shard(axis)`. Parameters without a pattern are whole
        on every rank. Any plan is right; one that follows a division through consecutive layers (columns of the first,
        rows of the second) communicates least.
    mesh: the ranks, as a group, an axis of a mesh, or None for all processes. `data_parallel` or `zero` over another
        axis may follow.
    broadcast: start from the parameters and the state of the group's first rank.
    The step given is changed and returned, with the updates of one process. Compiled, it computes with the parts
    (`step.ir` prints how); called eagerly, it gathers the parameters and computes everything on every rank. Between
    steps the model's attributes are parts, which `gathered(step)` replaces by parameters.
    The ranks draw the same random numbers, from the generator of the group's first rank, so that dropout is the same as
    in one process; `distributed.seed(s, mesh["tp"])` keeps that.
    Raises ArgumentError for a pattern that matches nothing, a parameter matched twice, and a size that the ranks do not
    divide; NotSupportedError for optimizers such as LAMB and Muon and a GradScaler, which read whole gradients."""
    group = as_group("tensor_parallel", mesh)

    def wrap(step: TrainStep) -> TrainStep:
        check_step("tensor_parallel", step, group, TensorParallel)
        model = _checked_model(step)
        placements = matched(plan, dict(model.named_parameters()), group)
        if broadcast:
            broadcast_state(step, group)
            _share_generator(group)
        add_exchange(step, _divided(step, model, placements, group))
        step.renew_sums()
        tracing.invalidate()
        return step

    return wrap


def _checked_model(step: TrainStep) -> Model:
    if not isinstance(step.model, Model):
        problem = f"the model is of class {type(step.model).__name__}"
        raise NotSupportedError("tensor_parallel", problem, "a meta.Model, whose parameters have names")
    if step.optimizer.reads_whole_parameters:
        problem = f"{type(step.optimizer).__name__} reads whole parameters to update them"
        raise NotSupportedError("tensor_parallel", problem, "another optimizer")
    if step.scaler is not None:
        problem = "a GradScaler, which would find only the overflows in this rank's parts"
        raise NotSupportedError("tensor_parallel", problem, "no scaler", "train in bfloat16")
    if exchanges(step, ShardedState) or exchanges(step, ShardedParameters):
        problem = "zero has divided the parameters already"
        raise NotSupportedError("tensor_parallel", problem, "whole ones", "apply tensor_parallel before zero")
    return step.model


def _share_generator(group: Group) -> None:
    """Continue all ranks' random numbers from the state of the group's first rank."""
    if group.ranks > 1:
        state = meta.broadcast_from(meta.array(default_generator.state, "int64"), 0, *group)
        default_generator.state = tuple(map(int, state.tolist()))  # type: ignore[assignment]


def _divided(step: TrainStep, model: Model, placements: Mapping[str, Sharded], group: Group) -> TensorParallel:
    """Replace the parameters of a step's model and optimizer, and their state, by parts."""
    optimizer_names = {id(x): name for name, x in step.optimizer.named}
    parameters = dict(model.named_parameters())
    parts = {
        id(x): ParameterPart(name, optimizer_names.get(id(x)), x.type, placement, group)
        for name, placement in placements.items()
        for x in (parameters[name],)
    }
    arrays = {id(x): parts[id(x)].array(x) for x in parameters.values() if id(x) in parts}
    slots: Any = step.optimizer.slots
    with no_grad():
        for part in parts.values():
            for slot in slots.values():
                if part.optimizer_name in slot and slot[part.optimizer_name].shape == part.kind.shape:
                    slot[part.optimizer_name] = part.own_part(slot[part.optimizer_name])
    step.optimizer.replace_parameters(
        {
            name: (name, arrays[key])
            for key, part in parts.items()
            for name in (part.optimizer_name,)
            if name is not None
        }
    )
    placed = [(owner, key, x) for owner, key, x in places(model) if id(x) in parts]
    for owner, key, x in placed:
        owner[key] = arrays[id(x)]
    return TensorParallel(step, group, list(parts.values()), [(o, key, parts[id(x)]) for o, key, x in placed])


class TensorParallel(Exchange):
    """The model's attributes are parts, except while it is called. Programs compute with the parts."""

    def __init__(
        self, step: TrainStep, group: Group, parts: list[ParameterPart], where: list[tuple[Any, Any, ParameterPart]]
    ) -> None:
        self.step = step
        self.ranks = group
        self.parts = parts
        self.where = where

    @contextmanager
    def parameters(self) -> Generator[None, None, None]:
        """Whole parameters in the place of parts, which `zero` may have gathered."""
        before = [owner[key] for owner, key, _ in self.where]
        whole: dict[str, Any] = {}
        for (owner, key, part), own in zip(self.where, before, strict=True):
            if part.name not in whole:
                whole[part.name] = part.whole(own)
            owner[key] = whole[part.name]
        try:
            with read_only("tensor_parallel", whole):
                yield
            for owner, key, part in self.where:
                if owner[key] is not whole[part.name]:
                    raise written_parameter("tensor_parallel", part.name)
        finally:
            for (owner, key, _), own in zip(self.where, before, strict=True):
                owner[key] = own

    def groups(self, name: str) -> tuple[tuple[str, int], ...]:
        return (self.ranks,) if any(part.owns(name) for part in self.parts) else ()

    def rewrite(self, record: tracing.Record) -> tracing.Record:
        """The program on parts."""
        if self.ranks.ranks == 1:
            return record
        own = {id(x) for name, x in self.step.named_state() if any(part.owns(name) for part in self.parts)}
        params = record.main.params[len(record.inputs) :]
        state = zip(params[: len(record.state)], record.state, strict=True)
        local = {param for param, (_, x) in state if id(x) in own}
        return replace(record, module=partition_pass(self.ranks, local)(record.module))
