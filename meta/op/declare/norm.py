"""Declarations of normalisations."""

from __future__ import annotations

from typing import Any

from meta.dim import Shape, product
from meta.dtype import accumulation_dtype
from meta.ir.type import TensorType, TupleType
from meta.op import rules
from meta.op.registry import declare
from meta.schema import norm

_Ints = tuple[int, ...]


def _parameter(name: str, value: TensorType | None, x: TensorType, shape: Shape, what: str, remedy: str = "") -> None:
    """Check a parameter that goes with x: its shape, and that it has the dtype of x or of statistics of x."""
    if value is None:
        return
    rules.require(
        rules.same_shape(value.shape, shape),
        f"'{name}' has shape {rules.show(value.shape)}",
        f"{rules.show(shape)}, {what}",
        remedy,
    )
    allowed = dict.fromkeys((x.dtype, accumulation_dtype(x.dtype)))
    rules.require(
        value.dtype in allowed,
        f"'{name}' is {value.dtype}, 'x' is {x.dtype}",
        " or ".join(allowed),
        f'cast it: {name}.cast("{x.dtype}")',
    )
    rules.same_device(x, value)


def _normalised(x: TensorType, axis: _Ints) -> Shape:
    """The sizes of the normalised axes."""
    rules.require_float("x", x)
    rules.require(x.ndim > 0 and len(axis) > 0, f"'x' has rank {x.ndim}, axis is {axis}", "at least one axis")
    return tuple(x.shape[a] for a in rules.axis_indices(axis, x.ndim))


def _sums(x: TensorType, shape: Shape) -> TensorType:
    """The type of sums of elements of x."""
    return x.with_shape(shape).with_dtype(accumulation_dtype(x.dtype))


def _over_rows(name: str, *parameters: str, doc: str) -> None:
    """A normalisation over axes, which then multiplies by `scale` and adds `bias`, if it has these parameters.
    Halves are computed in float32."""

    def typed(x: TensorType, *rest: Any) -> TensorType:
        *values, axis, _ = rest
        shape = _normalised(x, axis)
        for parameter, value in zip(parameters, values, strict=True):
            _parameter(parameter, value, x, shape, "the sizes of the normalised axes")
        return x

    doc += " Halves are computed in float32."
    declare(name, schema=norm.over_rows(name, *parameters), doc=doc, pattern="softmax", amp="never")(typed)


_over_rows(
    "layer_norm",
    "scale",
    "bias",
    doc="(x - mean) / sqrt(variance + eps) * scale + bias, with mean and (population) variance over the given axes "
    '(J. Ba, J. Kiros, G. Hinton, "Layer Normalization", 2016).',
)
_over_rows(
    "rms_norm",
    "scale",
    doc="x / sqrt(mean(x**2) + eps) * scale, with the mean over the given axes "
    '(B. Zhang, R. Sennrich, "Root Mean Square Layer Normalization", 2019).',
)


@declare("layer_norm_dx", schema=norm.layer_norm_dx, pattern="softmax", amp="never")
def layer_norm_dx(x: TensorType, scale: TensorType | None, dy: TensorType, axis: _Ints, eps: float) -> TensorType:
    """Gradient of layer_norm with respect to x."""
    _parameter("scale", scale, x, _normalised(x, axis), "the sizes of the normalised axes")
    rules.require_alike(x=x, dy=dy)
    return x


@declare("layer_norm_dwb", schema=norm.layer_norm_dwb, pattern="reduce", amp="never", outputs=("dscale", "dbias"))
def layer_norm_dwb(x: TensorType, dy: TensorType, axis: _Ints, eps: float) -> TupleType:
    """Gradients of layer_norm with respect to scale and bias; float32 if x is in half precision."""
    shape = _normalised(x, axis)
    rules.require_alike(x=x, dy=dy)
    return TupleType((_sums(x, shape),) * 2)


@declare(
    "layer_norm_dxwb",
    schema=norm.layer_norm_dxwb,
    pattern="opaque",
    amp="never",
    outputs=("dx", "dscale", "dbias"),
)
def layer_norm_dxwb(x: TensorType, scale: TensorType | None, dy: TensorType, axis: _Ints, eps: float) -> TupleType:
    """Gradients of layer_norm with respect to x, scale and bias, for dialects that compute all of them at once:
    layer_norm_dx and layer_norm_dwb."""
    sums = layer_norm_dwb(x, dy, axis, eps)
    assert isinstance(sums, TupleType)
    return TupleType((layer_norm_dx(x, scale, dy, axis, eps), *sums.fields))


def _row_statistics(x: TensorType, axis: _Ints) -> TensorType:
    """The type of one number for each row, whose axes stay with size 1."""
    axes = rules.axis_indices(axis, x.ndim)
    kept = tuple(1 if a in axes else d for a, d in enumerate(x.shape))
    return _sums(x, kept)


@declare(
    "layer_norm_train",
    schema=norm.over_rows("layer_norm_train", "scale", "bias"),
    pattern="softmax",
    amp="never",
    outputs=("y", "mean", "invstd"),
)
def layer_norm_train(
    x: TensorType, scale: TensorType | None, bias: TensorType | None, axis: _Ints, eps: float
) -> TupleType:
    """layer_norm, and what its gradient needs of each row: the mean, and 1 / sqrt(variance + eps). The normalised axes
    of both have size 1; they are float32 if x is in half precision."""
    shape = _normalised(x, axis)
    for name, value in (("scale", scale), ("bias", bias)):
        _parameter(name, value, x, shape, "the sizes of the normalised axes")
    statistics = _row_statistics(x, axis)
    return TupleType((x, statistics, statistics))


@declare(
    "layer_norm_train_dxwb",
    schema=norm.layer_norm_train_dxwb,
    pattern="opaque",
    amp="never",
    outputs=("dx", "dscale", "dbias"),
)
def layer_norm_train_dxwb(
    dy: TensorType, x: TensorType, scale: TensorType | None, mean: TensorType, invstd: TensorType, axis: _Ints
) -> TupleType:
    """Gradients of layer_norm_train with respect to x (also through mean and variance), scale and bias. The gradients
    of scale and bias are float32 if x is in half precision."""
    shape = _normalised(x, axis)
    _parameter("scale", scale, x, shape, "the sizes of the normalised axes")
    rules.require_alike(dy=dy, x=x)
    statistics = _row_statistics(x, axis)
    for name, value in (("mean", mean), ("invstd", invstd)):
        _parameter(name, value, x, statistics.shape, "one for each row")
    out = x.with_shape(shape).with_dtype(statistics.dtype)
    return TupleType((x, out, out))


def _channels(x: TensorType, axis: int) -> Shape:
    """The shape of a tensor with one element per channel."""
    rules.require_float("x", x)
    rules.require(x.ndim >= 2, f"'x' has shape {rules.show(x.shape)}", "a batch axis and an axis of channels")
    return (x.shape[rules.axis_index(axis, x.ndim)],)


def _channel_parameters(x: TensorType, axis: int, **parameters: TensorType | None) -> Shape:
    shape = _channels(x, axis)
    for name, value in parameters.items():
        is_without_batch = axis > 0 and value is not None and rules.is_known_equal(value.size, x.shape[axis - 1])
        remedy = "add the batch: x[None]" if is_without_batch else ""
        _parameter(name, value, x, shape, "one for each channel", remedy)
    return shape


@declare(
    "batch_norm_train",
    schema=norm.batch_norm_train,
    pattern="softmax",
    amp_args=("x",),
    inplace={1: "running_mean", 2: "running_var"},
    outputs=("y", "new_mean", "new_var", "mean", "invstd"),
)
def batch_norm_train(
    x: TensorType,
    running_mean: TensorType,
    running_var: TensorType,
    w: TensorType | None,
    b: TensorType | None,
    momentum: float,
    eps: float,
    axis: int,
) -> TupleType:
    """(x - mean) / sqrt(variance + eps) * w + b, with mean and (population) variance of each channel over this batch
    (S. Ioffe, C. Szegedy, "Batch Normalization", 2015).

    The running statistics become (1 - momentum) * running + momentum * batch, with the unbiased variance of the batch;
    they are updated in place and returned as new_mean and new_var. The gradient needs the results mean and invstd,
    1 / sqrt(variance + eps), of the batch; they are float32 if x is in half precision. A batch without elements leaves
    the running statistics unchanged."""
    shape = _channel_parameters(x, axis, running_mean=running_mean, running_var=running_var, w=w, b=b)
    others = product(d for i, d in enumerate(x.shape) if i != axis % x.ndim)
    rules.require(
        others != 1,
        f"'x' has shape {rules.show(x.shape)}: one element a channel",
        "more than one, or the variance says nothing",
        "use a larger batch, or batch_norm_infer",
    )
    stats = _sums(x, shape)
    return TupleType((x, running_mean, running_var, stats, stats))


@declare(
    "batch_norm_train_dxwb",
    schema=norm.batch_norm_train_dxwb,
    pattern="softmax",
    amp_args=("dy", "x"),
    outputs=("dx", "dw", "db"),
)
def batch_norm_train_dxwb(
    dy: TensorType, x: TensorType, w: TensorType | None, mean: TensorType, invstd: TensorType, axis: int
) -> TupleType:
    """Gradients of batch_norm_train with respect to x (also through mean and variance), w and b. The gradients of w and
    b are float32 if x is in half precision."""
    shape = _channel_parameters(x, axis, w=w, mean=mean, invstd=invstd)
    rules.require_alike(dy=dy, x=x)
    stats = _sums(x, shape)
    return TupleType((x, stats, stats))


@declare(
    "batch_norm_stats",
    schema=norm.batch_norm_stats,
    pattern="reduce",
    amp_args=("x",),
    outputs=("mean", "variance", "invstd"),
)
def batch_norm_stats(x: TensorType, eps: float, axis: int) -> TupleType:
    """The mean and the (population) variance of each channel, and 1 / sqrt(variance + eps), as batch_norm_train uses
    them; float32 if x is in half precision."""
    return TupleType((_sums(x, _channels(x, axis)),) * 3)


@declare(
    "batch_norm_sums",
    schema=norm.batch_norm_sums,
    pattern="reduce",
    amp_args=("dy", "x"),
    outputs=("dw", "db"),
)
def batch_norm_sums(dy: TensorType, x: TensorType, mean: TensorType, invstd: TensorType, axis: int) -> TupleType:
    """The gradients of batch_norm_train with respect to w and b, from which follows that with respect to x: the sums of
    dy * (x - mean) * invstd and of dy over each channel; float32 if x is in half precision."""
    shape = _channel_parameters(x, axis, mean=mean, invstd=invstd)
    rules.require_alike(dy=dy, x=x)
    return TupleType((_sums(x, shape),) * 2)


@declare("batch_norm_infer", schema=norm.batch_norm_infer, pattern="broadcast", amp_args=("x",))
def batch_norm_infer(
    x: TensorType,
    running_mean: TensorType,
    running_var: TensorType,
    w: TensorType | None,
    b: TensorType | None,
    eps: float,
    axis: int,
) -> TensorType:
    """(x - running_mean) / sqrt(running_var + eps) * w + b, for each channel. The running statistics are constants:
    they have no gradient."""
    _channel_parameters(x, axis, running_mean=running_mean, running_var=running_var, w=w, b=b)
    return x
