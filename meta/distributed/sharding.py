"""ZeRO (S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020): data
parallelism whose ranks divide what they would all hold."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import meta
from meta import tracing
from meta.distributed.buckets import BUCKET_BYTES, Bucket, check_bucket_bytes
from meta.distributed.exchanges import Exchange, add_exchange, check_step, exchanges, read_only, written_parameter
from meta.distributed.gradients import broadcast_state
from meta.distributed.mesh import Group, GroupLike, as_group
from meta.distributed.shards import Shard, gather, scatter_mean, shard_buckets
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, NotSupportedError
from meta.model.model import Model
from meta.modes import no_grad
from meta.optim.train_step import TrainStep


def zero(
    stage: int, mesh: GroupLike = None, *, bucket_bytes: int | None = None, broadcast: bool = True
) -> Callable[[TrainStep], TrainStep]:
    """`zero(2, mesh["dp"])(step)`: data parallelism with divided state.

    Each parameter is a vector, padded to a multiple of the number of ranks; every rank keeps a shard of it.
    stage: 1 divides the optimizer's state: a rank updates its shard, and all shards are gathered. 2 divides gradients
        too: a rank gets only the sum of its shard. 3 divides the parameters too: they are gathered where the model
        reads them; between steps the model's attributes are shards, which `gathered(step)` replaces by parameters.
    mesh: the ranks, as a group, an axis of a mesh, or None for all processes.
    bucket_bytes: least size of the parameters or gradients that are sent together; by default 25 MiB, in stage 3 at
        most a 32nd of the parameters.
    broadcast: start from the parameters and the state of the group's first rank.
    The updates equal `data_parallel`'s. The step given is changed and returned; so is its optimizer, which then has
    shards (`w.shard`) as parameters. With `accumulate`, every call communicates, so that sums are divided too.
    Raises ArgumentError for something else, NotSupportedError for LAMB, LANS, Adafactor and Muon, whose updates need
    whole parameters, for a GradScaler and, when called, for a model that writes parameters itself."""
    if isinstance(stage, bool) or stage not in (1, 2, 3):
        raise ArgumentError("zero", f"stage is {stage!r}", "1, 2 or 3")
    group = as_group("zero", mesh)
    if bucket_bytes is not None:
        check_bucket_bytes("zero", bucket_bytes)

    def wrap(step: TrainStep) -> TrainStep:
        check_step("zero", step, group, _Sharded)
        _check_supported(step, stage)
        if broadcast:
            broadcast_state(step, group)
        shards = shard_optimizer(step, group)
        least_bytes = bucket_bytes or _default_bucket_bytes(stage, shards)
        if stage == 3:
            add_exchange(step, _divide_model(step, shards, least_bytes))
        else:
            add_exchange(step, ShardedState(group, shards, least_bytes, sharded_gradients=stage == 2))
        step.renew_sums()
        return step

    return wrap


def _default_bucket_bytes(stage: int, shards: Sequence[Shard]) -> int:
    """In stage 3, a rank has the whole parameters of a bucket at one time, so that small models need small buckets."""
    parameters = sum(shard.array.nbytes * shard.group.ranks for shard in shards)
    return max(min(BUCKET_BYTES, parameters // 32), 1) if stage == 3 else BUCKET_BYTES


def _check_supported(step: TrainStep, stage: int) -> None:
    if step.optimizer.reads_whole_parameters:
        problem = f"{type(step.optimizer).__name__} reads whole parameters to update them"
        raise NotSupportedError("zero", problem, "another optimizer", "use data_parallel for it")
    if step.scaler is not None:
        problem = "a GradScaler, which would find only the overflows in this rank's shards"
        raise NotSupportedError("zero", problem, "no scaler", "train in bfloat16, or use data_parallel")
    if stage == 3 and not isinstance(step.model, Model):
        problem = f"the model is of class {type(step.model).__name__}"
        raise NotSupportedError("zero", problem, "a meta.Model, whose parameters are attributes", "use stage 1 or 2")


def shard_optimizer(step: TrainStep, group: Group) -> list[Shard]:
    """Make a step's optimizer update this rank's shards of its parameters, with shards of their state."""
    optimizer = step.optimizer
    before = exchanges(step, Exchange)
    shards = {
        name: Shard(name, x, group, tuple(other for exchange in before for other in exchange.groups(name)))
        for name, x in optimizer.named
    }
    with no_grad():
        for arrays in optimizer.slots.values():
            for name in list(arrays):
                if arrays[name].shape == shards[name].shape:
                    arrays[f"{name}.shard"] = shards[name].own_part(arrays.pop(name))
    optimizer.replace_parameters({name: (f"{name}.shard", shard.array) for name, shard in shards.items()})
    return list(shards.values())


class _Sharded(Exchange):
    """An exchange of gradients that every rank has shards of."""

    def __init__(self, group: Group, shards: list[Shard], bucket_bytes: int) -> None:
        self.ranks = group
        self.shards = shards
        self.bucket_bytes = bucket_bytes

    def groups(self, name: str) -> tuple[tuple[str, int], ...]:
        del name
        return (self.ranks,)


def shards_of(step: TrainStep) -> list[Shard]:
    """The shards into which `zero` divided the parameters of a step."""
    return [shard for exchange in exchanges(step, _Sharded) for shard in exchange.shards]


class ShardedState(_Sharded):
    """Stages 1 and 2: whole parameters, shards of the optimizer's state."""

    def __init__(self, group: Group, shards: list[Shard], bucket_bytes: int, *, sharded_gradients: bool) -> None:
        super().__init__(group, shards, bucket_bytes)
        self.sharded_gradients = sharded_gradients

    def parameters(self) -> AbstractContextManager[None]:
        return read_only("zero", {shard.name: shard.parameter for shard in self.shards})

    def after_backward(self) -> None:
        """Move the mean of the ranks' gradients to the shards."""
        # The last parameters have the first gradients.
        shards = [shard for shard in reversed(self.shards) if shard.parameter.grad is not None]
        with no_grad():
            for bucket in shard_buckets(shards, self.bucket_bytes) if shards else ():
                gradients = [shard.parameter.grad for shard in bucket]
                for shard, mean in zip(bucket, self.means(bucket, gradients), strict=True):
                    shard.parameter.grad = None
                    shard.array.grad = mean

    def means(self, bucket: list[Shard], gradients: list[Any]) -> list[Any]:
        if self.sharded_gradients:
            return scatter_mean(bucket, gradients)
        joined = Bucket(tuple(shard.parameter for shard in bucket))
        means = joined.divide(meta.all_reduce(joined.join(gradients), "mean", *bucket[0].group))
        return [shard.own_part(mean) for shard, mean in zip(bucket, means, strict=True)]

    def after_update(self) -> None:
        """Gather the parameters from the shards."""
        with no_grad():
            for bucket in shard_buckets(self.shards, self.bucket_bytes):
                whole = gather(bucket, [shard.array.detach() for shard in bucket])
                for shard, value in zip(bucket, whole, strict=True):
                    shard.parameter.update(value)


class ShardedParameters(_Sharded):
    """Stage 3: the model's attributes are shards, except while it is called."""

    def __init__(
        self, group: Group, shards: list[Shard], places: list[tuple[Any, Any, Shard]], bucket_bytes: int
    ) -> None:
        super().__init__(group, shards, bucket_bytes)
        self.places = places

    def after_backward(self) -> None:
        """Turn the sums of gradients, which backward leaves at shards, into means."""
        with no_grad():
            for shard in self.shards:
                if shard.array.grad is not None:
                    shard.array.grad = shard.array.grad / shard.group.ranks

    @contextmanager
    def parameters(self) -> Generator[None, None, None]:
        """Whole parameters in the place of shards."""
        whole: dict[str, Any] = {}
        for bucket in shard_buckets(self.shards, self.bucket_bytes):
            values = gather(bucket, [shard.array for shard in bucket])
            whole |= {shard.name: value for shard, value in zip(bucket, values, strict=True)}
        for owner, key, shard in self.places:
            owner[key] = whole[shard.name]
        try:
            with read_only("zero", whole):
                yield
            for owner, key, shard in self.places:
                if owner[key] is not whole[shard.name]:
                    raise written_parameter("zero", shard.name)
        finally:
            for owner, key, shard in self.places:
                owner[key] = shard.array


def _divide_model(step: TrainStep, shards: list[Shard], bucket_bytes: int) -> ShardedParameters:
    """Replace the parameters of the step's model by shards."""
    model = step.model
    assert isinstance(model, Model)
    by_id = {id(shard.parameter): shard for shard in shards}
    placed_shards = [(owner, key, by_id[id(x)]) for owner, key, x in places(model) if id(x) in by_id]
    missing = by_id.keys() - {id(shard.parameter) for _, _, shard in placed_shards}
    if missing:
        names = ", ".join(sorted(by_id[i].name for i in missing))
        problem = f"{names}: the optimizer updates parameters outside of the model"
        raise NotSupportedError("zero", problem, "parameters that are attributes of the model", "use stage 1 or 2")
    exchange = ShardedParameters(shards[0].group, shards, placed_shards, bucket_bytes)
    for owner, key, shard in placed_shards:
        owner[key] = shard.array
        shard.parameter = shard.array
    tracing.invalidate()
    return exchange


def places(model: Model) -> Iterator[tuple[Any, Any, NDArray]]:
    """Where the model and its parts keep arrays: (dict or list, key, array)."""
    for _, part in model.named_models():
        yield from ((vars(part), key, x) for key, x in vars(part).items() if isinstance(x, NDArray))
        containers: list[Any] = [v for v in vars(part).values() if isinstance(v, (dict, list))]
        for container in containers:
            keys: Any = container if hasattr(container, "keys") else range(len(container))
            yield from ((container, key, container[key]) for key in keys if isinstance(container[key], NDArray))


@contextmanager
def gathered(step: TrainStep) -> Generator[Any, None, None]:
    """The model of a step of `zero(3)` or `tensor_parallel` with whole parameters in the place of shards: to evaluate
    it, or to copy its `state_dict()`. All ranks enter together. Raises NotSupportedError at the end if parameters were
    written, which would be lost."""
    with no_grad(), nullcontext() if step.exchange is None else step.exchange.parameters():
        yield step.model
