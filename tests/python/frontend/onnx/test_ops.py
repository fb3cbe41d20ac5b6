"""The table of operators against ONNX's definitions, and a selection of ONNX's own node tests."""

from __future__ import annotations

import inspect
import re
import warnings
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import meta
from meta.frontend.onnx import from_onnx
from meta.frontend.onnx.functions import has_body
from meta.frontend.onnx.ops._refused import REASONS
from meta.frontend.onnx.ops._row import qualified, table

_HISTORY = {(s.domain, s.name, s.since_version): s for s in onnx.defs.get_all_schemas_with_history()}
_NEWEST = {(s.domain, s.name): s for s in onnx.defs.get_all_schemas() if not s.deprecated}

_ROWS = sorted((domain, name) for domain, name in _NEWEST if table.versions(qualified(name, domain)))


@pytest.mark.parametrize(("domain", "name"), sorted(_NEWEST))
def test_every_operator_has_a_row_or_a_reason(domain: str, name: str) -> None:
    version = _NEWEST[domain, name].since_version
    is_supported = table.find(qualified(name, domain), version) is not None or has_body(name, domain, version)
    assert is_supported != ((domain, name) in REASONS)


def test_rows_and_reasons_are_operators_of_onnx() -> None:
    operators = {qualified(name, domain) for domain, name, _ in _HISTORY}
    reasons = {qualified(name, domain): reason for (domain, name), reason in REASONS.items()}
    assert {n for n in table.names() if not n.startswith("com.microsoft::")} | {*reasons} <= operators
    for name, reason in reasons.items():
        assert not table.versions(name)
        assert reason


def test_the_page_lists_the_operators_without_a_row() -> None:
    page = (Path(__file__).parents[4] / "docs/from-onnx.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| `(ai\.onnx[^`]*)` \| ([^|]*) \|", page, re.M)
    listed = {(domain, name) for domain, names in cells for name in re.findall(r"`(\w+)`", names)}
    assert listed == {(domain or "ai.onnx", name) for domain, name in REASONS}


@pytest.mark.parametrize(("domain", "name"), _ROWS)
def test_rows_take_the_inputs_and_attributes_that_onnx_defines(domain: str, name: str) -> None:
    schema = _NEWEST[domain, name]
    row = table.find(qualified(name, domain), schema.since_version)
    assert row is not None
    kinds = inspect.Parameter
    parameters = list(inspect.signature(row.function).parameters.values())[1:]
    attributes = {p.name: p for p in parameters if p.kind is kinds.KEYWORD_ONLY}
    inputs = [p for p in parameters if p.kind is not kinds.KEYWORD_ONLY]
    assert set(schema.attributes) <= set(attributes)
    required = {a.name for a in schema.attributes.values() if a.required}
    assert {p.name for p in attributes.values() if p.default is p.empty} <= required
    variadic = bool(inputs) and inputs[-1].kind is kinds.VAR_POSITIONAL
    assert variadic or len(inputs) == len(schema.inputs)
    assert set(row.constants) <= {p.name for p in inputs}


@pytest.mark.parametrize(("domain", "name"), _ROWS)
def test_attributes_have_the_defaults_of_onnx(domain: str, name: str) -> None:
    schema = _NEWEST[domain, name]
    row = table.find(qualified(name, domain), schema.since_version)
    assert row is not None
    parameters = inspect.signature(row.function).parameters
    for attribute in schema.attributes.values():
        if not attribute.default_value.type:
            continue
        value = onnx.helper.get_attribute_value(attribute.default_value)
        expected = value.decode() if isinstance(value, bytes) else value
        default = parameters[attribute.name].default
        if isinstance(expected, list):
            assert list(default) in (expected, []), attribute.name  # activations: filled up for each direction
        elif isinstance(expected, float):
            assert default == pytest.approx(expected, rel=1e-6), attribute.name
        else:
            assert default == expected, attribute.name


# --- ONNX's own tests ------------------------------------------------------------------------------------------------

_CASES = {
    "bitshift": ("bitshift_left_uint8", "bitshift_right_uint16"),
    "celu": ("celu",),
    "center_crop_pad": ("center_crop_pad_crop_and_pad", "center_crop_pad_crop_negative_axes_hwc"),
    "clip": ("clip_outbounds", "clip_default_int8_min"),
    "col2im": ("col2im_dilations", "col2im_5d"),
    "compress": ("compress_0", "compress_default_axis"),
    "conv": ("conv_with_autopad_same", "conv_with_strides_and_asymmetric_padding"),
    "convinteger": ("convinteger_with_padding",),
    "convtranspose": ("convtranspose_output_shape", "convtranspose_autopad_same", "convtranspose_group_2"),
    "cumsum": ("cumsum_1d_reverse_exclusive",),
    "deformconv": ("deform_conv_with_mask_bias", "deform_conv_with_multiple_offset_groups"),
    "depthtospace": ("depthtospace_crd_mode_example",),
    "dequantizelinear": ("dequantizelinear_axis", "dequantizelinear_blocked"),
    "dft": ("dft_axis", "dft_irfft"),
    "dynamicquantizelinear": ("dynamicquantizelinear_max_adjusted",),
    "gathernd": ("gathernd_example_int32_batch_dim1",),
    "gemm": ("gemm_all_attributes",),
    "gridsample": ("gridsample_reflection_padding", "gridsample_volumetric_nearest_align_corners_0"),
    "groupnormalization": ("group_normalization_example",),
    "gru": ("gru_batchwise", "gru_with_initial_bias"),
    "hardmax": ("hardmax_one_hot",),
    "layernormalization": ("layer_normalization_4d_axis2",),
    "lrn": ("lrn",),
    "lstm": ("lstm_with_peepholes", "lstm_batchwise"),
    "matmulinteger": ("matmulinteger",),
    "maxunpool": ("maxunpool_export_with_output_shape",),
    "mod": ("mod_mixed_sign_int32", "mod_int64_fmod"),
    "negativeloglikelihoodloss": ("nllloss_NCd1_weight_ii",),
    "nonmaxsuppression": ("nonmaxsuppression_two_batches", "nonmaxsuppression_center_point_box_format"),
    "onehot": ("onehot_with_negative_axis", "onehot_negative_indices"),
    "pad": ("wrap_pad", "reflect_pad", "constant_pad_negative_axes"),
    "qlinearconv": ("qlinearconv",),
    "qlinearmatmul": ("qlinearmatmul_3D_uint8_float32",),
    "quantizelinear": ("quantizelinear_axis", "quantizelinear_blocked_asymmetric"),
    "reduce_log_sum": ("reduce_log_sum_asc_axes",),
    "reversesequence": ("reversesequence_batch",),
    "rnn": ("simple_rnn_with_initial_bias",),
    "roialign": ("roialign_mode_max", "roialign_aligned_false"),
    "rotaryembedding": ("rotary_embedding_interleaved", "rotary_embedding_3d_input"),
    "scatterelements": ("scatter_elements_with_negative_indices", "scatter_elements_with_duplicate_indices"),
    "scatternd": ("scatternd_max",),
    "slice": ("slice_neg_steps", "slice_end_out_of_bounds"),
    "split": ("split_variable_parts_2d_opset18",),
    "stft": ("stft_with_window",),
    "tensorscatter": ("tensorscatter_circular",),
    "topk": ("top_k_smallest",),
    "unique": ("unique_not_sorted_without_axis", "unique_sorted_with_axis"),
    "upsample": ("upsample_nearest",),
    "ai_onnx_ml.tree_ensemble": ("ai_onnx_ml_tree_ensemble_set_membership",),
}  # fmt: skip
"""Names of ONNX's tests, by the module of its wheel that makes them."""


@cache
def _cases(module: str) -> dict[str, Any]:
    node = import_module("onnx.backend.test.case.node")
    first = len(node._NodeTestCases)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_module(f"onnx.backend.test.case.node.{module}")
    return {case.name: case for case in node._NodeTestCases[first:]}


def _agree(module: str, name: str) -> None:
    case = _cases(module)[f"test_{name}"]
    for inputs, expected in case.data_sets:
        result = from_onnx(case.model).interpret(*inputs)
        for actual, value in zip(result if isinstance(result, tuple) else (result,), expected, strict=True):
            np.testing.assert_allclose(np.asarray(actual), value, rtol=case.rtol, atol=case.atol)
            assert str(actual.dtype) == str(value.dtype)


@pytest.mark.parametrize(("module", "name"), [(m, n) for m, names in _CASES.items() for n in names])
def test_onnx(module: str, name: str) -> None:
    with meta.with_dialect("reference"):  # whose kernels need no compilation
        _agree(module, name)
