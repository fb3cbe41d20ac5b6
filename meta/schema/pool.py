"""Schemas of pooling. Each schema serves one, two and three spatial axes."""

from meta.schema._dsl import DY, Arg, Bool, IntTuple, Schema, Tensor

_X = Arg("x", Tensor, doc="Input, (batch, channels, *spatial).")
_INDICES = Arg("indices", Tensor, doc="Indices from the forward operator.")
_SHAPE = Arg("shape", IntTuple, doc="Shape of the forward operator's x.")
_SIZE = Arg("size", IntTuple, doc="Spatial shape of the result: one int, or one per axis.")
_INCLUDE = Arg("count_include_pad", Bool, True, doc="Whether padding counts in the mean, as zeros.")


def _window(rank: int) -> tuple[Arg, ...]:
    return (
        Arg("kernel", IntTuple, doc="Size of the window: one int, or one per axis."),
        Arg("stride", IntTuple, (), doc="Step between windows; () for the size of the kernel."),
        Arg("padding", IntTuple, (0,) * rank,
            doc="Padding around x, never the maximum: one int, one per axis, or all leading then all trailing."),
        Arg("dilation", IntTuple, (1,) * rank, doc="Step between the elements of a window: one int, or one per axis."),
        Arg("ceil_mode", Bool, False, doc="Keep a last window that is partly outside if it starts inside."),
    )  # fmt: skip


def max_pool(rank: int) -> Schema:
    return Schema("max_pool", _X, *_window(rank))


def max_pool_dx(rank: int) -> Schema:
    return Schema("max_pool_dx", DY, _INDICES, _SHAPE, *_window(rank))


def avg_pool(rank: int) -> Schema:
    return Schema("avg_pool", _X, *_window(rank), _INCLUDE)


def avg_pool_dx(rank: int) -> Schema:
    return Schema("avg_pool_dx", DY, _SHAPE, *_window(rank), _INCLUDE)


adaptive_pool = Schema("adaptive_pool", _X, _SIZE)
adaptive_max_pool_dx = Schema("adaptive_max_pool_dx", DY, _INDICES, _SHAPE)
adaptive_avg_pool_dx = Schema("adaptive_avg_pool_dx", DY, _SHAPE)
