"""Communication between the ranks of a training step, and several such exchanges in one step."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from meta.distributed.held_arrays import HeldArray, held_arrays
from meta.distributed.mesh import Group
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, NotSupportedError
from meta.modes import modes
from meta.optim.train_step import TrainStep
from meta.parts import shared_writes
from meta.tracing import Record

if TYPE_CHECKING:
    from meta.distributed.shards import Shard
    from meta.distributed.tensor.parameters import ParameterPart


class Exchange:
    """Base class of exchanges, which communicates nothing. See meta.optim.train_step.StepExchange.

    ranks: the group that takes part.
    shards: the parameters whose elements are divided among the ranks.
    parts: the parameters that are divided along axes."""

    ranks: Group
    shards: Sequence[Shard] = ()
    parts: Sequence[ParameterPart] = ()
    _compared = ""
    """The types of the last call's arguments, which the ranks have compared."""

    def before_call(self, args: tuple[Any, ...]) -> None:
        """Raise CommunicationError for arguments of other types than on the other ranks, which are compared where they
        differ from the last call's. Programs are compared by their executor."""
        if modes.trace is None and self.ranks.ranks > 1:
            from meta.backend.torch.groups import find_group

            types = ", ".join(f"{x.dtype}{list(x.shape)}" if isinstance(x, NDArray) else type(x).__name__ for x in args)
            if types == self._compared:
                return
            remedy = "divide batches by meta.distributed.batch_part, which refuses unequal parts or pads them"
            find_group("TrainStep", *self.ranks).compare("TrainStep", "the list of arguments", f"({types})", remedy)
            self._compared = types

    def parameters(self) -> AbstractContextManager[None]:
        return nullcontext()

    def after_backward(self) -> None: ...

    def before_update(self, named: Iterable[tuple[str, NDArray]], last: Any) -> None: ...

    def after_update(self) -> None: ...

    def groups(self, name: str) -> tuple[tuple[str, int], ...]:
        del name
        return ()

    def rewrite(self, record: Record) -> Record:
        return record

    def placements(self, step: TrainStep) -> list[tuple[str, ...]]:
        rows = [(x.name, f"{x.share:.3g}", f"{x.size:,}", x.where) for x in arrays_of(step)]
        return [("array", "share", "bytes of a rank", "where"), *rows]


@contextmanager
def read_only(where: str, tensors: Mapping[str, Any]) -> Generator[None, None, None]:
    """Around a forward pass that reads these tensors, by their names. Raises NotSupportedError if it writes one: ranks
    would have different parameters, or lose the write."""
    before = {name: _state_of(x) for name, x in tensors.items()}
    yield
    for name, x in tensors.items():
        if _state_of(x) != before[name]:
            raise written_parameter(where, name)


def written_parameter(where: str, name: str) -> NotSupportedError:
    problem = f"the parameter {name!r} is written in place while the model is called"
    remedy = "write it after the step, or use a layer that does not, such as an Embedding without max_norm"
    return NotSupportedError(where, problem, "parameters that only the optimizer writes", remedy)


def _state_of(x: Any) -> Any:
    """A value that changes when a tensor is written in place."""
    if not isinstance(x, NDArray):
        return x.atom
    return modes.trace.is_overwritten(x) if modes.trace is not None else shared_writes(x)[0]


class Exchanges(Exchange):
    """Several exchanges of one step, over different groups, in the order in which they were applied."""

    def __init__(self, members: tuple[Exchange, ...]) -> None:
        self.members = members

    def before_call(self, args: tuple[Any, ...]) -> None:
        for each in self.members:
            each.before_call(args)

    @contextmanager
    def parameters(self) -> Generator[None, None, None]:
        """The parameters that were divided last are gathered first."""
        with ExitStack() as stack:
            for each in reversed(self.members):
                stack.enter_context(each.parameters())
            yield

    def after_backward(self) -> None:
        for each in self.members:
            each.after_backward()

    def before_update(self, named: Iterable[tuple[str, NDArray]], last: Any) -> None:
        listed = list(named)
        for each in self.members:
            each.before_update(listed, last)

    def after_update(self) -> None:
        for each in self.members:
            each.after_update()

    def groups(self, name: str) -> tuple[tuple[str, int], ...]:
        return tuple(group for each in self.members for group in each.groups(name))

    def rewrite(self, record: Record) -> Record:
        for each in self.members:
            record = each.rewrite(record)
        return record


E = TypeVar("E", bound=Exchange)


def exchanges(step: TrainStep, kind: type[E]) -> list[E]:
    """The exchanges of a class in which a step takes part."""
    own: Any = step.exchange
    members = own.members if isinstance(own, Exchanges) else () if own is None else (own,)
    return [each for each in members if isinstance(each, kind)]


def arrays_of(step: TrainStep) -> tuple[HeldArray, ...]:
    """The arrays of a step's state, with the part of each that a rank holds."""
    members = exchanges(step, Exchange)
    shards = [shard for each in members for shard in each.shards]
    return held_arrays(step, shards, [part for each in members for part in each.parts])


def add_exchange(step: TrainStep, exchange: Exchange) -> None:
    """Let a step take part in one more exchange."""
    before = exchanges(step, Exchange)
    step.exchange = Exchanges((*before, exchange)) if before else exchange


def check_step(where: str, step: Any, group: Group, kind: type[Exchange]) -> None:
    """Raise ArgumentError for something other than a training step, and for one that has an exchange of this class or
    over this group already."""
    if not isinstance(step, TrainStep):
        problem = f"the step is of class {type(step).__name__}"
        raise ArgumentError(
            where, problem, "a TrainStep", "make one: meta.optim.with_optimizer(meta.optim.SGD, 0.1)(model, loss)"
        )
    for other in exchanges(step, Exchange):
        if isinstance(other, kind) or other.ranks.name == group.name:
            problem = f"the step takes part in an exchange already, over group '{other.ranks.name}'"
            raise ArgumentError(where, problem, "one exchange of each kind, over an axis of a mesh for each")
