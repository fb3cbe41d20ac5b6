"""The cuDNN dialect without a GPU: errors, and checks of calls."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from meta.backend.cudnn import descriptors, kernel, layer_norm, loader
from meta.backend.cudnn.c_functions import CFunctions, StatusError
from meta.device import device
from meta.errors import KernelError
from meta.ir.expr import CallInfo
from meta.ir.layout import StridedLayout
from meta.ir.type import TensorType, tensor_type
from meta.op import dispatch, implementation, work
from meta.op.dialect.cudnn import DIALECT
from meta.op.registry import as_type, get
from meta.schema._dsl import TensorLike

CUDA = device("cuda")
FAMILIES = ("nn", "conv", "pool", "norm", "attention")


class Typed(TensorLike):
    """A tensor without values."""

    def __init__(self, kind: TensorType) -> None:
        self.type = kind


def t(*shape: int, dtype: str = "float32") -> Typed:
    return Typed(tensor_type(shape, dtype, CUDA))


def call(name: str, *args: Any, **kwargs: Any) -> CallInfo:
    op = get(name)
    types = tuple(map(as_type, op.schema.bind(name, args, kwargs)))
    return CallInfo(op, types, op.declare(*types), CUDA)


@pytest.fixture(scope="module")
def families() -> Iterator[SimpleNamespace]:
    """The modules of the dialect. Their implementations are removed afterwards, because the dialect is off here."""
    prefix = "meta.op.dialect.cudnn."
    yield SimpleNamespace(**{name: import_module(prefix + name) for name in FAMILIES})
    for registered in implementation._implementations.values():
        registered[:] = [i for i in registered if i.dialect is not DIALECT]
    for name in FAMILIES:
        sys.modules.pop(prefix + name)


# --- errors ----------------------------------------------------------------------------------------------------------

_NOT_SUPPORTED = 3000


class FakeLibrary:
    """cuDNN whose functions fail with a status."""

    def __init__(self, status: int) -> None:
        self.cudnnSetStream = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: status)
        name = ctypes.create_string_buffer(b"CUDNN_STATUS_SOME")
        self.cudnnGetErrorString = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int)(lambda _: ctypes.addressof(name))
        self.cudnnGetLastErrorString = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)(self.write)

    @staticmethod
    def write(buffer: int, _: int) -> None:
        ctypes.memmove(buffer, b"too\n  odd", 10)


def test_statuses_are_named_and_explained() -> None:
    with pytest.raises(StatusError, match=r"^cudnnSetStream failed with CUDNN_STATUS_SOME \(3000\): too odd$"):
        loader.bind(FakeLibrary(_NOT_SUPPORTED)).cudnnSetStream(1, 2)
    assert loader.bind(FakeLibrary(0)).cudnnSetStream(1, 2) == 0


def test_missing_functions_of_a_version() -> None:
    functions = loader.bind(FakeLibrary(0))
    with pytest.raises(StatusError, match="cudnnSoftmaxForward failed with no such function in this version"):
        functions.cudnnSoftmaxForward  # noqa: B018
    with pytest.raises(AttributeError, match="cudnnFindAlgorithm has no signature"):
        functions.cudnnFindAlgorithm  # noqa: B018


@pytest.mark.parametrize("when", ["made", "run"])
def test_errors_name_the_operator_and_shapes(when: str) -> None:
    def fail(*_: Any) -> None:
        CFunctions(FakeLibrary(_NOT_SUPPORTED), {"cudnnSetStream": "pp"}, lambda s: (str(s), "odd")).cudnnSetStream(
            1, 2
        )

    make: Any = fail if when == "made" else lambda _: fail
    with pytest.raises(KernelError) as error:
        kernel.kernel(make, call("conv2d", t(2, 3, 8, 8), t(4, 3, 3, 3), padding=1))(object(), object())
    text = str(error.value)
    assert text.startswith("[conv2d] cudnnSetStream failed with 3000: odd for x=float32[2, 3, 8, 8], w=float32[4, 3")
    assert "padding=(1, 1)" in text or "padding=(1,)" in text
    assert 'with meta.with_dialect(["torch", "tvm"])' in text


# --- checkers --------------------------------------------------------------------------------------------------------


def test_strides_and_sizes_around_an_axis() -> None:
    assert descriptors.row_major_strides((2, 3, 4)) == (12, 4, 1)
    assert descriptors.row_major_strides(()) == ()
    assert kernel.around((2, 3, 4, 5), -2) == (6, 4, 5)
    assert kernel.around((), 0) == (1, 1, 1)


@pytest.mark.parametrize(
    ("make_call", "reason"),
    [
        (lambda: call("softmax", t(2, 3)), None),
        (lambda: call("softmax", t(2, 0)), "an empty tensor"),
        (lambda: call("relu", t(2, 3, dtype="int32")), "dtype int32 is not one of float32, float64, float16, bfloat16"),
        (lambda: call("softmax", t(1 << 16, 1 << 15)), "2147483648 elements: cuDNN counts them in 32 bits"),
    ],
)
def test_checks_common_to_all_operators(make_call: Any, reason: str | None) -> None:
    assert kernel.unsupported_tensors(make_call()) == reason


@pytest.mark.parametrize(
    ("make_call", "reason"),
    [
        (lambda: call("max_pool2d", t(1, 2, 8, 8), 2), None),
        (lambda: call("max_pool2d", t(1, 2, 8, 8), 3, 2, 1), None),
        (lambda: call("max_pool2d", t(1, 2, 9, 9), 3, 2, ceil_mode=True), None),
        (lambda: call("max_pool2d", t(1, 2, 8, 8), 3, 2, dilation=2), "dilation 2: cuDNN pools neighbours only"),
        (
            lambda: call("max_pool2d", t(1, 2, 8, 8), 3, 2, (0, 1, 1, 1)),
            "padding of 0 before and 1 after: cuDNN pads both sides alike",
        ),
        (
            lambda: call("max_pool2d", t(1, 2, 8, 8), 3, 2, ceil_mode=True),
            "ceil_mode keeps a window that ends beyond the padding: cuDNN drops it",
        ),
        (lambda: call("adaptive_max_pool2d", t(1, 2, 8, 8), (2, 4)), None),
        (
            lambda: call("adaptive_max_pool2d", t(1, 2, 7, 8), 2),
            "7 elements do not divide into 2 windows of one size",
        ),
    ],
)
def test_pooling(families: Any, make_call: Any, reason: str | None) -> None:
    assert families.pool.unsuited(make_call()) == reason


def test_batch_norm(families: Any) -> None:
    half, wide = t(2, 3, 4, dtype="bfloat16"), t(3)
    assert families.norm.unsupported(call("batch_norm_train", half, wide, wide)) is None
    narrow = call("batch_norm_train", half, wide, wide, t(3, dtype="bfloat16"))
    assert families.norm.unsupported(narrow) == "w is bfloat16: cuDNN takes float32 beside bfloat16"


def test_gradients_of_large_batch_norms(families: Any) -> None:
    name, c = "batch_norm_train_dxwb", t(64)
    large = call(name, t(64, 64, 56, 56), t(64, 64, 56, 56), c, c, c)
    refusal = work.refusal("cudnn", large)
    assert refusal == "200704 elements per channel of a large call, too many: above 32767 others cost less"
    assert families.norm.unsupported(large) is None
    assert work.refusal("cudnn", call(name, t(64, 64, 32, 32), t(64, 64, 32, 32), c, c, c)) is None


def test_layer_norm() -> None:
    unsuited = layer_norm.unsuited
    assert unsuited(call("layer_norm", t(2, 3, 4), axis=(1, 2))) is None
    assert unsuited(call("layer_norm", t(2, 3, 4), axis=1)) == "axes (1,) of rank 3: cuDNN normalises the last axes"
    assert (
        unsuited(call("layer_norm", t(2, 4, dtype="float64")))
        == "dtype float64 is not one of float32, float16, bfloat16"
    )
    mixed = call("layer_norm", t(2, 4, dtype="float16"), t(4), t(4, dtype="float16"))
    assert unsuited(mixed) == "scale and bias are float16 and float32: cuDNN needs one dtype"


@pytest.mark.parametrize(
    ("make_call", "reason"),
    [
        (lambda: call("softmax", t(4096, 4096)), None),
        (lambda: call("softmax", t(32, 64, 56, 56), axis=1), None),
        (lambda: call("softmax", t(64, 1000)), "64000 elements in rows, too few: below 16777216 others cost less"),
        (lambda: call("softmax", t(1024, 1024), axis=0), "1024 columns, too few: below 32768 others cost less"),
        (
            lambda: call("softmax_dx", t(8192, 8192), t(8192, 8192)),
            "8192 elements per row, too many: above 512 others cost less",
        ),
        (
            lambda: call("softmax_dx", t(32, 64, 56, 56), t(32, 64, 56, 56), axis=1),
            "6422528 elements in columns: others cost less",
        ),
        (
            lambda: call("max_pool2d", t(64, 32, 8, 8), 2),
            "131072 elements, too few: below 262144 others cost less",
        ),
        (lambda: call("batch_norm_infer", t(64, 64, 56, 56), *[t(64)] * 4), None),
        (
            lambda: call("batch_norm_infer", t(16, 64, 28, 28), *[t(64)] * 4),
            "802816 elements in columns, too few: below 6291456 others cost less",
        ),
        (
            lambda: call("batch_norm_infer", t(8192, 1024), *[t(1024)] * 4),
            "8388608 elements in rows: others cost less",
        ),
        (
            lambda: call("layer_norm", t(64, 256, dtype="float16")),
            "16384 elements of 16 bits: others cost less",
        ),
        (
            lambda: call("layer_norm_dwb", t(8, 256), t(8, 256)),
            "2048 elements, too few: below 32768 others cost less",
        ),
    ],
)
def test_limits(make_call: Any, reason: str | None) -> None:
    assert work.refusal("cudnn", make_call()) == reason


def test_named_dialects_have_no_limits(families: Any) -> None:
    softmax = next(i for i in implementation._implementations["softmax"] if i.dialect is DIALECT)
    available = dispatch.Dialect(DIALECT.name, DIALECT.devices, 0, lambda: None, DIALECT.kernel)
    few, available_softmax = call("softmax", t(64, 1000)), replace(softmax, dialect=available)
    assert str(available_softmax.refusal(few)).startswith("64000 elements in rows, too few")
    with dispatch.with_dialect("cudnn"):
        assert available_softmax.refusal(few) is None


def test_programs_skip_implementations_for_eager_calls(families: Any) -> None:
    infer = call("batch_norm_infer", t(64, 64, 56, 56), *[t(64)] * 4)
    eager, program = dispatch.candidates(infer)[0], dispatch.candidates(infer, in_program=True)[0]
    assert str(eager).startswith("cudnn (plevel 15): off: ")
    assert str(program).startswith("cudnn (plevel 15): for eager calls only")
    with dispatch.with_dialect("cudnn"):
        assert str(dispatch.candidates(infer, in_program=True)[0]) == str(eager)


@pytest.mark.parametrize(
    ("make_call", "count"),
    [
        (lambda: call("conv2d", t(64, 1, 8, 8), t(16, 1, 3, 3), padding=1), 64 * 16 * 64 * 9),
        (lambda: call("conv2d", t(64, 16, 8, 8), t(16, 4, 3, 3), padding=1, groups=4), 64 * 16 * 64 * 36),
        (lambda: call("conv1d_dx", t(4, 3, 3), t(2, 4, 5), (2, 3, 9), 2, 1), 2 * 4 * 5 * 9),
        (lambda: call("conv1d_dw", t(2, 3, 9), t(2, 4, 5), (4, 3, 3), 2, 1), 2 * 4 * 5 * 9),
        (lambda: call("conv1d_transpose", t(2, 4, 5), t(4, 3, 3), 2, 1), 2 * 4 * 5 * 9),
        (lambda: call("conv2d", t(64, 64, 56, 56), t(64, 64, 3, 3), padding=1), None),
        (lambda: call("conv2d_dw", t(64, 1, 8, 8), t(64, 16, 8, 8), (16, 1, 3, 3), padding=1), None),
    ],
)
def test_limits_of_convolutions(make_call: Any, count: int | None) -> None:
    refusal = work.refusal("cudnn", make_call())
    assert refusal is None if count is None else str(refusal).startswith(f"{count} multiplications, too few")


def test_attention(families: Any) -> None:
    unsuited, name = families.attention.unsuited, "attention_with_lse"
    half = t(2, 5, 8, dtype="float16")
    assert unsuited(call(name, half, half, half)) is None
    assert unsuited(call(name, t(2, 5, 8), t(2, 5, 8), t(2, 5, 8))) == "dtype float32, of float16, bfloat16"
    odd = t(2, 5, 12, dtype="float16")
    assert unsuited(call(name, half, half, odd)) == "12 features of v, a multiple of 8"
    target = families.attention.problem(call(name, half, half, half, causal=True))
    assert (target.q, target.lse, target.causal) == ((2, 1, 5, 8), (2, 1, 5, 1), True)


HEADS = StridedLayout((2, 16, 64), (2, 4, 16, 8), (1024, 8, 64, 1), 32)
"""Four heads of half of a product's features."""


@pytest.mark.parametrize(
    ("layouts", "strides"),
    [
        ((HEADS, None, None), (HEADS.strides, None, None)),
        ((HEADS, replace(HEADS, offset=0), HEADS), (HEADS.strides,) * 3),
        ((replace(HEADS, offset=4), None, None), None),  # not at a multiple of 16 bytes
        ((replace(HEADS, strides=(1024, 8, 2, 1)), None, None), None),
        (
            (StridedLayout((2, 4, 8, 16), (2, 4, 16, 8), (512, 128, 1, 16)), None, None),
            None,
        ),  # features are not contiguous
    ],
)
def test_attention_reads_strides(
    families: Any, layouts: tuple[StridedLayout | None, ...], strides: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = families.attention
    monkeypatch.setattr(family, "without_plan", lambda call: None)
    half = t(2, 4, 16, 8, dtype="bfloat16")
    strided = replace(call("attention_with_lse", half, half, half), layouts=layouts)
    assert family.reads_strides(strided) is (strides is not None)
    if strides is not None:
        assert dict(family.problem(strided).strides) == {i: s for i, s in enumerate(strides, 1) if s is not None}


def test_attention_of_rank_3_reads_strides(families: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leading axes are one axis to cuDNN, if one stride steps through them; logarithms are row-major."""
    family = families.attention
    monkeypatch.setattr(family, "without_plan", lambda call: None)
    half, lse = t(8, 16, 8, dtype="bfloat16"), t(8, 16)
    rows = StridedLayout((8, 16, 32), (8, 16, 8), (512, 32, 1), 8)
    gradient = call("attention_with_lse_dx", half, half, half, half, lse, half)
    strided = replace(gradient, layouts=(rows, None, None, None, None, rows))
    assert family.reads_strides(strided)
    assert family.problem(strided).strides == ((family.Q, (512, 512, 32, 1)), (family.DY, (512, 512, 32, 1)))
    assert not family.reads_strides(
        replace(gradient, layouts=(rows, *(None,) * 3, StridedLayout((16, 8), (8, 16), (1, 8)), None))
    )


def test_attention_writes_orders(families: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads behind the length, as the product that follows reads them; features stay last."""
    family = families.attention
    monkeypatch.setattr(family, "without_plan", lambda call: None)
    half, lse, heads_last = t(2, 4, 16, 8, dtype="bfloat16"), t(2, 4, 16), (0, 2, 1, 3)
    forward = replace(call("attention_with_lse", half, half, half), orders=(heads_last, None))
    assert family.writes_orders(forward)
    assert family.problem(forward).strides == ((family.Y, (512, 8, 32, 1)),)
    assert not family.writes_orders(replace(forward, orders=((0, 1, 3, 2), None)))
    assert not family.writes_orders(replace(forward, orders=(None, (0, 2, 1))))
    gradient = replace(
        call("attention_with_lse_dx", half, half, half, half, lse, half), orders=(None, heads_last, None)
    )
    assert family.problem(gradient).strides == ((family.DK, (512, 8, 32, 1)),)


def test_attention_with_a_bias(families: Any) -> None:
    """A bias follows the other operands, and is broadcast by cuDNN."""
    family, half, bias = families.attention, t(2, 4, 16, 8, dtype="bfloat16"), t(16, 16, dtype="bfloat16")
    biased = call("attention_with_lse", half, half, half, bias=bias)
    assert family.problem(biased).bias == (1, 1, 16, 16)
    assert family._numbers(biased) == (family.Q, family.K, family.V, family.BIAS)


def test_convolutions_by_their_tensors(families: Any) -> None:
    x, w, y = t(2, 3, 9), t(4, 3, 3), t(2, 4, 5)
    forward = families.conv.problem(call("conv1d", x, w, 2, 1), True)
    assert (forward.x, forward.w, forward.y) == ((2, 3, 1, 9), (4, 3, 1, 3), (2, 4, 1, 5))
    assert (forward.stride, forward.before, forward.tf32) == ((1, 2), (0, 1), True)
    for gradient in (call("conv1d_dx", w, y, (2, 3, 9), 2, 1), call("conv1d_dw", x, y, (4, 3, 3), 2, 1)):
        target = families.conv.problem(gradient, False)
        assert (target.x, target.w, target.y) == (forward.x, forward.w, forward.y)
    turned = families.conv.problem(call("conv1d_transpose", t(2, 4, 5), w, 2, 1), True)
    assert (turned.kind, turned.x, turned.y) == ("dgrad", (2, 3, 1, 9), (2, 4, 1, 5))
    assert not families.conv.problem(
        call("conv1d", t(1, 1, 3, dtype="float16"), t(1, 1, 3, dtype="float16")), True
    ).tf32
