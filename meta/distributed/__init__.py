"""Training on several processes, by torch.distributed: collectives, and training steps divided among the processes.

meta.distributed.init()                                   # in a program started by torchrun
mesh = meta.distributed.DeviceMesh({"dp": -1})
step = meta.distributed.data_parallel(mesh["dp"])(trainer)    # of meta.optim.with_optimizer
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

if TYPE_CHECKING:
    from meta.distributed.batch_norm import sync_batch_norm as sync_batch_norm
    from meta.distributed.batches import batch_part as batch_part
    from meta.distributed.checkpoint import exists as exists
    from meta.distributed.checkpoint import load as load
    from meta.distributed.checkpoint import save as save
    from meta.distributed.collectives import all_gather as all_gather
    from meta.distributed.collectives import all_reduce as all_reduce
    from meta.distributed.collectives import all_to_all as all_to_all
    from meta.distributed.collectives import barrier as barrier
    from meta.distributed.collectives import broadcast as broadcast
    from meta.distributed.collectives import permute as permute
    from meta.distributed.collectives import reduce as reduce
    from meta.distributed.collectives import reduce_scatter as reduce_scatter
    from meta.distributed.gradients import data_parallel as data_parallel
    from meta.distributed.mesh import DeviceMesh as DeviceMesh
    from meta.distributed.mesh import Group as Group
    from meta.distributed.parallel import tensor_parallel as tensor_parallel
    from meta.distributed.planning import Plan as Plan
    from meta.distributed.planning import plan as plan
    from meta.distributed.process import init as init
    from meta.distributed.process import is_initialized as is_initialized
    from meta.distributed.process import local_rank as local_rank
    from meta.distributed.process import rank as rank
    from meta.distributed.process import seed as seed
    from meta.distributed.process import shutdown as shutdown
    from meta.distributed.process import world_size as world_size
    from meta.distributed.sharding import gathered as gathered
    from meta.distributed.sharding import zero as zero
    from meta.distributed.tensor.parameters import shard as shard
else:
    _HOMES = {
        "meta.distributed.batch_norm": ("sync_batch_norm",),
        "meta.distributed.batches": ("batch_part",),
        "meta.distributed.checkpoint": ("exists", "load", "save"),
        "meta.distributed.collectives": (
            "all_gather", "all_reduce", "all_to_all", "barrier", "broadcast", "permute", "reduce", "reduce_scatter",
        ),
        "meta.distributed.gradients": ("data_parallel",),
        "meta.distributed.mesh": ("DeviceMesh", "Group"),
        "meta.distributed.parallel": ("tensor_parallel",),
        "meta.distributed.planning": ("Plan", "plan"),
        "meta.distributed.process": (
            "init", "is_initialized", "local_rank", "rank", "seed", "shutdown", "world_size",
        ),
        "meta.distributed.sharding": ("gathered", "zero"),
        "meta.distributed.tensor.parameters": ("shard",),
    }  # fmt: skip
    __getattr__, __dir__ = exports(__name__, _HOMES)
