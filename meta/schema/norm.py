"""Schemas of normalisations."""

from meta.schema._dsl import DY, Arg, Float, Int, IntTuple, OptionalTensor, Schema, Tensor

_AXES = Arg("axis", IntTuple, (-1,), doc="Axes that are normalised together.")
_EPS = Arg("eps", Float, 1e-5, doc="Added to the variance, or mean square.")
_CHANNEL = Arg("axis", Int, 1, doc="Channel axis; all other axes are normalised together.")
_X = Arg("x", Tensor, doc="Input, floating.")
_ROW_PARAMETERS = {
    "scale": Arg("scale", OptionalTensor, None, doc="Multiplies the result; of the shape of the normalised axes."),
    "bias": Arg("bias", OptionalTensor, None, doc="Added to the result; of the shape of the normalised axes."),
}
_STATS = (
    Arg("running_mean", Tensor, doc="Running mean of each channel."),
    Arg("running_var", Tensor, doc="Running variance of each channel."),
)
_W = Arg("w", OptionalTensor, None, doc="Multiplies each channel of the result.")
_B = Arg("b", OptionalTensor, None, doc="Added to each channel of the result.")


def over_rows(name: str, *parameters: str) -> Schema:
    """The schema of a normalisation over axes with these of the parameters "scale" and "bias"."""
    return Schema(name, _X, *(_ROW_PARAMETERS[parameter] for parameter in parameters), _AXES, _EPS)


layer_norm_dx = Schema(
    "layer_norm_dx", _X, Arg("scale", OptionalTensor, doc="As in the forward operator."), DY, _AXES, _EPS
)
layer_norm_dwb = Schema("layer_norm_dwb", _X, DY, _AXES, _EPS)
layer_norm_dxwb = Schema(
    "layer_norm_dxwb", _X, Arg("scale", OptionalTensor, doc="As in the forward operator."), DY, _AXES, _EPS
)
layer_norm_train_dxwb = Schema(
    "layer_norm_train_dxwb",
    DY,
    _X,
    Arg("scale", OptionalTensor, doc="As in the forward operator."),
    Arg("mean", Tensor, doc="Mean of each row, from the forward operator."),
    Arg("invstd", Tensor, doc="1 / sqrt(variance + eps) of each row, from the forward operator."),
    _AXES,
)
batch_norm_train = Schema(
    "batch_norm_train",
    _X,
    *_STATS,
    _W,
    _B,
    Arg("momentum", Float, 0.1, doc="Weight of this batch in the running statistics."),
    _EPS,
    _CHANNEL,
)
batch_norm_infer = Schema("batch_norm_infer", _X, *_STATS, _W, _B, _EPS, _CHANNEL)
_MEAN = Arg("mean", Tensor, doc="Mean of each channel, from the forward operator.")
_INVSTD = Arg("invstd", Tensor, doc="1 / sqrt(variance + eps) of each channel, from the forward operator.")
batch_norm_stats = Schema("batch_norm_stats", _X, _EPS, _CHANNEL)
batch_norm_sums = Schema("batch_norm_sums", DY, _X, _MEAN, _INVSTD, _CHANNEL)
batch_norm_train_dxwb = Schema(
    "batch_norm_train_dxwb",
    DY,
    _X,
    Arg("w", OptionalTensor, doc="As in the forward operator."),
    _MEAN,
    _INVSTD,
    _CHANNEL,
)
