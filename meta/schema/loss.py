"""Schemas of losses. Predictions come first, then targets."""

from meta.schema._dsl import DY, Arg, Choice, Float, Int, IntTuple, OptionalTensor, Schema, Tensor

_REDUCTION = Arg("reduction", Choice("mean", "sum", "none"), "mean", doc="Reduction of the losses of all elements.")
_X = Arg("x", Tensor, doc="Predictions, floating.")
_TARGET = Arg("target", Tensor, doc="Target values, of the same type as x.")
_BETA = Arg("beta", Float, 1.0, doc="Difference from which on the loss is linear instead of quadratic.")
_FACTORS = (
    Arg("weight", OptionalTensor, None, doc="Multiplies the loss of each element; broadcasts to x."),
    Arg("pos_weight", OptionalTensor, None, doc="Multiplies the loss of positive targets; broadcasts to x."),
)

pairwise = Schema("pairwise_loss", _X, _TARGET, _REDUCTION)
smooth_l1 = Schema("smooth_l1_loss", _X, _TARGET, _REDUCTION, _BETA)
probabilities = Schema("binary_cross_entropy", _X, _TARGET, _FACTORS[0], _REDUCTION)
logits = Schema("binary_cross_entropy_with_logits", _X, _TARGET, *_FACTORS, _REDUCTION)

_CLASSES = Arg("target", Tensor, doc="Index of the correct class for each prediction, of an integer dtype.")
_WEIGHT = Arg("weight", OptionalTensor, None, doc="Weight of each class; the mean is then weighted.")
_OPTIONS = (
    _REDUCTION,
    Arg("ignore_index", Int, -100, doc="Predictions with this target are ignored."),
    Arg("label_smoothing", Float, 0.0, doc="Share of the target, from 0 to 1, spread evenly over all classes."),
)

class_loss = Schema(
    "class_loss",
    Arg("x", Tensor, doc="One number per class, along axis 1 (axis 0 of a vector)."),
    _CLASSES,
    _WEIGHT,
    *_OPTIONS,
)
nll_loss_dx = Schema(
    "nll_loss_dx",
    DY,
    _CLASSES,
    Arg("weight", OptionalTensor, doc="As in the forward operator."),
    Arg("shape", IntTuple, doc="Shape of the forward operator's x."),
    *_OPTIONS,
)
