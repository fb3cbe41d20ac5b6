"""Schemas of collectives: operators that every rank of a group calls together."""

from meta.schema._dsl import Arg, Choice, Device, Int, IntPairs, Schema, Str, Tensor

_x = Arg("x", Tensor, doc="This rank's tensor, of one type on all ranks.")
_group = Arg("group", Str, "world", doc='Name of the group: "world", or an axis of a `meta.distributed.DeviceMesh`.')
_ranks = Arg("ranks", Int, 1, doc="Number of ranks in the group; with 1, x is the result.")
_mean = Arg("reduction", Choice("sum", "mean"), "sum", doc="What is computed of the ranks' elements.")

all_reduce = Schema(
    "all_reduce",
    _x,
    Arg(
        "reduction",
        Choice("sum", "mean", "max", "min", "product"),
        "sum",
        doc="What is computed of the ranks' elements.",
    ),
    _group,
    _ranks,
)
all_reduce_when = Schema(
    "all_reduce_when",
    _x,
    Arg("when", Tensor, doc="A 0-d bool tensor, equal on all ranks: whether they communicate."),
    _mean,
    _group,
    _ranks,
)
all_gather = Schema(
    "all_gather", _x, Arg("axis", Int, 0, doc="Axis along which the ranks' tensors are concatenated."), _group, _ranks
)
reduce_scatter = Schema(
    "reduce_scatter",
    _x,
    Arg("axis", Int, 0, doc="Axis that is divided among the ranks; its size is a multiple of `ranks`."),
    _mean,
    _group,
    _ranks,
)
broadcast_from = Schema(
    "broadcast_from", _x, Arg("source", Int, 0, doc="Rank in the group whose tensor is the result."), _group, _ranks
)
reduce_to = Schema(
    "reduce_to", _x, Arg("destination", Int, 0, doc="Rank in the group that has the result."), _mean, _group, _ranks
)
all_to_all = Schema(
    "all_to_all",
    _x,
    Arg("split_axis", Int, 0, doc="Axis that is divided among the ranks; its size is a multiple of `ranks`."),
    Arg("concat_axis", Int, 0, doc="Axis along which the parts from the ranks are concatenated."),
    _group,
    _ranks,
)
send_receive = Schema(
    "send_receive",
    _x,
    Arg("pairs", IntPairs, doc="Pairs (sender, receiver) of ranks; each rank sends and receives at most once."),
    _group,
    _ranks,
)
barrier = Schema("barrier", _x, _group, _ranks)
group_rank = Schema("group_rank", _group, _ranks, Arg("device", Device, "cpu", doc="Device of the result."))
