"""Operators of ONNX without a row, and why."""

from __future__ import annotations

_TEXT = "meta has no tensors of text"
_LISTS = "its inputs or results are text, maps or lists of maps"
_CLASSES = "its results are labels by voting rules; models that use it belong to scikit-learn's runtime"

REASONS: dict[tuple[str, str], str] = {
    ("", "ImageDecoder"): "it decodes image files",
    ("", "RegexFullMatch"): _TEXT,
    ("", "StringConcat"): _TEXT,
    ("", "StringNormalizer"): _TEXT,
    ("", "StringSplit"): _TEXT,
    ("ai.onnx.ml", "CastMap"): _LISTS,
    ("ai.onnx.ml", "CategoryMapper"): _TEXT,
    ("ai.onnx.ml", "DictVectorizer"): _LISTS,
    ("ai.onnx.ml", "LinearClassifier"): _CLASSES,
    ("ai.onnx.ml", "Normalizer"): "definition and runtimes differ for negative numbers",
    ("ai.onnx.ml", "SVMClassifier"): _CLASSES,
    ("ai.onnx.ml", "SVMRegressor"): _CLASSES,
    ("ai.onnx.ml", "TreeEnsembleClassifier"): _CLASSES,
    ("ai.onnx.ml", "TreeEnsembleRegressor"): "TreeEnsemble, which replaces it, is supported",
    ("ai.onnx.ml", "ZipMap"): _LISTS,
    ("ai.onnx.preview.training", "Gradient"): "meta differentiates models itself: `meta.passes.auto_diff`",
}
"""Reasons by domain ("" for the standard operators) and name."""
