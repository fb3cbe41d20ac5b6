"""Schemas of image operators, on tensors of shape (batch, channels, *spatial)."""

from meta.schema._dsl import Arg, Choice, Float, Int, IntTuple, Optional, Schema, Tensor

_how = (
    Arg("method", Choice("nearest", "linear", "cubic"), "linear", doc="Interpolation method."),
    Arg(
        "coordinates",
        Choice("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn"),
        "half_pixel",
        doc="Maps positions of the result to positions of x; the names are from ONNX Resize.",
    ),
    Arg(
        "rounding",
        Choice("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"),
        "floor",
        doc='Rounding of positions by the method "nearest".',
    ),
    Arg("cubic_alpha", Float, -0.75, doc="Coefficient of the cubic convolution."),
)
non_max_suppression = Schema(
    "non_max_suppression",
    Arg("boxes", Tensor, doc="Corners (x1, y1, x2, y2) of boxes, (batch, n, 4), floating."),
    Arg("scores", Tensor, doc="(batch, n), of the dtype of boxes."),
    Arg("iou_threshold", Float, 0.5, doc="Intersection over union above which the lower box is dropped."),
    Arg("score_threshold", Optional(Float), None, doc="Boxes are dropped up to this score; None keeps all."),
    Arg("max_size", Optional(Int), None, doc="Largest number of boxes to keep; None for all."),
)
resize = Schema(
    "resize",
    Arg("x", Tensor, doc="Input, (batch, channels, *spatial)."),
    Arg("size", IntTuple, doc="Spatial shape of the result: one int, or one per axis."),
    *_how,
)
resize_dx = Schema(
    "resize_dx",
    Arg("dy", Tensor, doc="Gradient of the result."),
    Arg("shape", IntTuple, doc="Shape of the forward input."),
    *_how,
)
