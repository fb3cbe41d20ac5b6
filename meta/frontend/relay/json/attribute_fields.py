"""The kinds of the fields of Relay's attribute classes.

In JSON every field is a string: "7" is the number 7 or node 7, depending on the declaration of the field in C++. The
names below come from the attribute structs of TVM 0.6 to 0.18.
"""

from __future__ import annotations

OBJECTS = frozenset({
    "assert_shape", "axes", "batch_axis", "batch_dims", "begin", "block_shape", "channels", "const_shape",
    "crop_size", "crops", "dilation", "dilations", "end", "equation", "exclusive", "index_rank",
    "indices_or_sections", "k", "kernel_size", "lhs_end", "max_output_size", "meta_schedule_original_shape", "metadata",
    "newshape", "num_samples", "offsets", "out_shape", "output_padding", "output_shape", "output_size", "pad_width",
    "padding", "paddings", "pool_size", "pooled_size", "ratios", "repeats", "reps", "rhs_end", "roi", "scales",
    "score_threshold", "seq_axis", "shape", "size", "sizes", "start", "step", "steps", "stop", "stride", "strides",
    "target_shape", "units", "variances", "virtual_device",
})  # fmt: skip
"""Fields that hold objects: lists, expressions and optional numbers."""

AXIS_OBJECTS = frozenset({
    "ArgReduceAttrs", "GatherAttrs", "L2NormalizeAttrs", "ReduceAttrs", "RepeatAttrs", "ReverseAttrs", "ScanopAttrs",
    "ScatterAddAttrs", "ScatterAttrs", "ScatterElementsAttrs", "SqueezeAttrs", "StackAttrs", "TakeAttrs",
    "VarianceAttrs",
})  # fmt: skip
"""Classes whose `axis` is a list or an optional number; in other classes it is a plain number."""

NUMBERS = frozenset({
    ("CorrelationAttrs", "kernel_size"), ("LRNAttrs", "size"),
})  # fmt: skip
"""Exceptions to OBJECTS: plain numbers."""

BOOLS = frozenset({
    "align_corners", "allowzero", "ceil_mode", "center", "clip", "constrain_body", "constrain_result",
    "count_include_pad", "exclude", "force_suppress", "invalid_to_bottom", "iou_loss", "is_ascend",
    "is_lshift_required", "is_multiply", "is_rshift_required", "keep_background", "keepdims", "return_counts",
    "return_indices", "reverse", "rewrite_once", "scale", "select_last_index", "sorted", "sparse_lhs", "transpose_a",
    "transpose_b", "unbiased", "unipolar", "upper",
})  # fmt: skip

FLOATS = frozenset({
    "a_max", "a_min", "alpha", "beta", "bias", "cubic_alpha", "dilation_value", "eps", "epsilon",
    "extrapolation_value", "high", "iou_threshold", "low", "mask_value", "mean", "nms_threshold", "pad_value", "rate",
    "scale_d", "scale_h", "scale_w", "spatial_scale", "threshold",
})  # fmt: skip

STRINGS = frozenset({
    "auto_scheduler_rewritten_layout", "compiler", "compute_dtype", "coordinate_transformation_mode", "data_layout",
    "dst_layout", "dtype", "indexing", "kernel_layout", "layout", "method", "mode", "out_dtype", "out_layout",
    "output_format", "pack_dtype", "pack_type", "pad_mode", "padding_mode", "reduction", "ret_type", "rounding",
    "rounding_method", "slice_mode", "src_layout", "weight_layout",
})  # fmt: skip
"""Texts. Whether a field holds the text or the number of a string node depends on the release."""


def holds_object(kind: str, field: str) -> bool | None:
    """Whether `field` of the class `kind` ("relay.attrs.TakeAttrs") is the number of a node; None if unknown."""
    name = kind.rpartition(".")[2]
    if (name, field) in NUMBERS or field in BOOLS or field in FLOATS:
        return False
    if field == "axis":
        return name in AXIS_OBJECTS or None
    return True if field in OBJECTS else None
