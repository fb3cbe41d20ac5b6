"""Parameters divided along an axis among the ranks of a group."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import meta
from meta.autograd.function import Function
from meta.distributed.mesh import Group
from meta.distributed.shards import own_rank
from meta.distributed.tensor.placement import Sharded, divides, part_type
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, did_you_mean
from meta.ir.type import TensorType
from meta.modes import no_grad


def shard(axis: int, blocks: int = 1) -> Sharded:
    """Divide a parameter along an axis: in a plan of `tensor_parallel`.

    axis: negative ones count from the end.
    blocks: equal blocks that the axis consists of; each block is divided. 3 for queries, keys and values in one weight,
        so that every rank has the rows of its heads."""
    for name, value in (("axis", axis), ("blocks", blocks)):
        if isinstance(value, bool) or not isinstance(value, int) or (name == "blocks" and value < 1):
            raise ArgumentError("shard", f"{name} is {value!r}", "an int" + (" above 0" if name == "blocks" else ""))
    return Sharded(axis, blocks)


class _Gathered(Function):
    """The parts of all ranks along an axis. The ranks compute one loss, so the gradient of a part is the ranks' mean of
    the whole gradient, and not the sum that `all_gather` has."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        part, axis, group = args
        ctx.where = axis, group
        return meta.all_gather(part, axis, *group)

    @staticmethod
    def backward(ctx: Any, *dys: Any) -> Any:
        axis, group = ctx.where
        return meta.reduce_scatter(dys[0], axis, "mean", *group), None, None


class ParameterPart:
    """One parameter that is divided among the ranks.

    name: in the model.  optimizer_name: in the optimizer, None for one that it does not update.  kind: the type of the
    whole parameter.  placement: how it is divided."""

    __slots__ = ("group", "kind", "name", "optimizer_name", "placement")

    def __init__(
        self, name: str, optimizer_name: str | None, kind: TensorType, placement: Sharded, group: Group
    ) -> None:
        self.name, self.optimizer_name = name, optimizer_name
        self.kind = kind
        self.placement = placement
        self.group = group

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a rank's part."""
        return part_type(self.kind, self.placement, self.group.ranks).shape  # type: ignore[return-value]

    def owns(self, name: str) -> bool:
        """Whether a name belongs to this parameter, or to its state: `w`, `w.velocity`, `w.shard`."""
        names = (self.name,) if self.optimizer_name is None else (self.name, self.optimizer_name)
        return any(name == own or name.startswith(f"{own}.") for own in names)

    def array(self, whole: NDArray) -> NDArray:
        """This rank's part of the parameter."""
        with no_grad():
            own = self.own_part(whole.detach())
        own.requires_grad = whole.requires_grad
        return own

    def own_part(self, x: Any) -> Any:
        """This rank's part of a tensor of the parameter's shape."""
        axis, blocks = self.placement.axis, self.placement.blocks
        size = x.shape[axis] // (blocks * self.group.ranks)
        parts = meta.reshape(x, (*x.shape[:axis], blocks, self.group.ranks, size, *x.shape[axis + 1 :]))
        own = meta.take(parts, own_rank(self.group, x.device), axis + 1)
        return meta.reshape(own, (*x.shape[:axis], blocks * size, *x.shape[axis + 1 :]))

    def whole(self, part: Any) -> Any:
        """The whole parameter, from the ranks' parts; differentiable."""
        axis, blocks = self.placement.axis, self.placement.blocks
        if blocks == 1:
            return _Gathered.apply(part, axis, tuple(self.group))
        shape = part.shape
        split = meta.reshape(part, (*shape[:axis], blocks, shape[axis] // blocks, *shape[axis + 1 :]))
        return meta.reshape(_Gathered.apply(split, axis + 1, tuple(self.group)), self.kind.shape)


def matched(plan: Mapping[str, Sharded], parameters: Mapping[str, NDArray], group: Group) -> dict[str, Sharded]:
    """Parameter -> how it is divided. Raises ArgumentError for a plan that does not fit the parameters."""
    if not isinstance(plan, Mapping) or not plan:
        raise _wrong(f"the plan is {plan!r:.60}", _PLAN)
    placements: dict[str, tuple[str, Sharded]] = {}
    for pattern, placement in plan.items():
        if not isinstance(pattern, str) or not isinstance(placement, Sharded):
            raise _wrong(f"the plan has {pattern!r}: {placement!r:.60}", _PLAN)
        names = [name for name in parameters if fnmatchcase(name, pattern)]
        if not names:
            listed = ", ".join(list(parameters)[:6]) + (", ..." if len(parameters) > 6 else "")
            hint = did_you_mean(pattern, list(parameters))
            raise _wrong(f"no parameter is called '{pattern}'", f"patterns of names among {listed}", hint)
        for name in names:
            if name in placements:
                problem = f"'{name}' is matched by '{placements[name][0]}' and by '{pattern}'"
                raise _wrong(problem, "one pattern for each parameter")
            placements[name] = pattern, _fitting(name, parameters[name], placement, group)
    return {name: placement for name, (_, placement) in placements.items()}


_PLAN = 'a dict of patterns, such as {"layers.*.first.w": shard(0)}'


def _fitting(name: str, x: NDArray, placement: Sharded, group: Group) -> Sharded:
    """The placement with a positive axis."""
    ndim = x.ndim
    if not -ndim <= placement.axis < ndim:
        raise _wrong(
            f"'{name}' has shape {x.shape}, and is divided along axis {placement.axis}", f"an axis below {ndim}"
        )
    sharded = Sharded(placement.axis % ndim, placement.blocks)
    if not divides(x.shape[sharded.axis], sharded, group.ranks):
        parts = f"{group.ranks} ranks" if sharded.blocks == 1 else f"{sharded.blocks} blocks times {group.ranks} ranks"
        problem = f"axis {sharded.axis} of '{name}' has size {x.shape[sharded.axis]}, which {parts} do not divide"
        raise _wrong(problem, f"a multiple of {sharded.blocks * group.ranks}", "choose another axis, or leave it whole")
    return sharded


def _wrong(problem: str, expected: str, remedy: str = "") -> ArgumentError:
    return ArgumentError("tensor_parallel", problem, expected, remedy)
