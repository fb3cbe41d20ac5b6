"""Schedules keep results for all extents, and produce the loop structure that makes them fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from benchmarks.problems import sample
from benchmarks.schedules import scheduled_function
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import target as targets
from meta.backend.tvm.kernel import KernelSpec, TensorSpec, build, prim_func
from meta.backend.tvm.schedule import blocks, patterns
from meta.backend.tvm.schedule.cpu.matmul import match_contraction
from meta.backend.tvm.te import math as te_math
from meta.ir.pattern import PATTERNS
from meta.testing.samples import T
from tests.python.kernels_in_memory import forget_kernels

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The disk cache is off, so that every kernel is built."""
    monkeypatch.setenv("META_CACHE", "0")
    yield
    forget_kernels()


# Computes like those of operators.


def _chain(x: Any) -> Any:
    doubled = tvm.te.compute(x.shape, lambda *i: x(*i) * 2.0, name="doubled")
    tanh = tvm.te.compute(x.shape, lambda *i: te_math.tanh(doubled(*i)), name="tanh")
    return tvm.te.compute(x.shape, lambda *i: tvm.te.max(tanh(*i), 0.0), name="y")


def _outer_of_expensive(x: Any) -> Any:
    """The exponential of a row, which every row of the result reads."""
    e = tvm.te.compute((x.shape[1],), lambda j: tvm.te.exp(x[0, j]), name="e")
    return tvm.te.compute(x.shape, lambda i, j: e[j] + x[i, j], name="y")


def _transpose(x: Any) -> Any:
    return tvm.topi.transpose(x)


def _lower_triangle(x: Any) -> Any:
    return tvm.te.compute(x.shape, lambda i, j: tvm.tirx.Select(j <= i, x[i, j], tvm.tirx.const(0, "float32")), "y")


def _softmax(x: Any) -> Any:
    return tvm.topi.nn.softmax(x, axis=-1)


def _softmax_of_columns(x: Any) -> Any:
    return tvm.topi.nn.softmax(x, axis=0)


def _norm(x: Any) -> Any:
    """Rows normalised by mean and standard deviation, which are results too."""
    m, n = x.shape
    k1, k2 = tvm.te.reduce_axis((0, n), "k1"), tvm.te.reduce_axis((0, n), "k2")
    size = n.astype("float32")
    total = tvm.te.compute((m,), lambda i: tvm.te.sum(x[i, k1], axis=k1), name="total")
    mean = tvm.te.compute((m,), lambda i: total[i] / size, name="mean")
    square = tvm.te.compute(
        (m,), lambda i: tvm.te.sum((x[i, k2] - mean[i]) * (x[i, k2] - mean[i]), axis=k2), name="square"
    )
    deviation = tvm.te.compute((m,), lambda i: tvm.te.sqrt(square[i] / size + 1e-5), name="deviation")
    y = tvm.te.compute((m, n), lambda i, j: (x[i, j] - mean[i]) / deviation[i], name="y")
    return y, mean, deviation


def _norm_reference(x: Array) -> tuple[Array, ...]:
    mean = x.mean(1)
    deviation = np.sqrt(x.var(1) + 1e-5)
    return (x - mean[:, None]) / deviation[:, None], mean, deviation


def _softmax_reference(x: Array, axis: int = 1) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
    return e / e.sum(axis, keepdims=True)


def _reduce(kind: str, axis: Any, keepdims: bool = False) -> Callable[[Any], Any]:
    return lambda x: getattr(tvm.topi, kind)(x, axis=axis, keepdims=keepdims)


def _row_sums_of_transpose(x: Any) -> Any:
    """A row of the result reads all rows of the intermediate, so rows must not share a loop."""
    n = x.shape[0]
    doubled = tvm.te.compute((n, n), lambda i, j: tvm.te.exp(x[i, j]), name="doubled")
    k = tvm.te.reduce_axis((0, n), "k")
    total = tvm.te.compute((n,), lambda i: tvm.te.sum(doubled[k, i], axis=k), name="total")
    return tvm.te.compute((n, n), lambda i, j: doubled[i, j] / total[i], name="y")


_Case = tuple[Callable[..., Any], str, Callable[[Array], Any], Callable[[tuple[Any, ...]], tuple[tuple[Any, ...], ...]]]
_same: Callable[[tuple[Any, ...]], tuple[tuple[Any, ...], ...]] = lambda s: (s,)  # noqa: E731
_LOWEST = np.finfo(np.float32).min
_CASES: dict[str, _Case] = {
    "chain": (_chain, "elemwise", lambda x: np.maximum(np.tanh(x * 2), 0), _same),
    "outer of expensive": (_outer_of_expensive, "injective", lambda x: np.exp(x[:1]) + x, _same),
    "transpose": (_transpose, "injective", lambda x: x.T, lambda s: (s[::-1],)),
    "lower triangle": (_lower_triangle, "elemwise", np.tril, _same),
    "softmax": (_softmax, "softmax", _softmax_reference, _same),
    "softmax of columns": (_softmax_of_columns, "softmax", lambda x: _softmax_reference(x, 0), _same),
    "norm": (_norm, "softmax", _norm_reference, lambda s: (s, s[:1], s[:1])),
    "sum of rows": (_reduce("sum", 1), "reduce", lambda x: x.sum(1), lambda s: (s[:1],)),
    "sum of columns": (_reduce("sum", 0), "reduce", lambda x: x.sum(0), lambda s: (s[1:],)),
    "sum of all": (_reduce("sum", (0, 1)), "reduce", lambda x: x.sum(), lambda s: ((),)),
    "sum keeping rank": (_reduce("sum", 1, True), "reduce", lambda x: x.sum(1, keepdims=True), lambda s: ((s[0], 1),)),
    "max of rows": (_reduce("max", 1), "reduce", lambda x: x.max(1, initial=_LOWEST), lambda s: (s[:1],)),
    "argmax of rows": (_reduce("argmax", 1), "reduce", lambda x: x.argmax(1), lambda s: (s[:1],)),
}  # fmt: skip
_SQUARE: dict[str, _Case] = {
    "row sums of transpose": (_row_sums_of_transpose, "softmax", lambda x: np.exp(x) / np.exp(x).sum(0)[:, None],
                              _same),
}  # fmt: skip
_SHAPES = [(1, 1), (4, 4), (3, 17), (17, 3), (33, 64), (5, 1000), (40, 1024), (1000, 5), (7, 4096)]
_EMPTY = [(0, 5), (5, 0), (0, 0)]


def _check_case(case: _Case, shape: tuple[int, ...], symbolic: bool) -> None:
    compute, pattern, reference, results = case
    extents: tuple[Any, ...] = tuple("mn"[: len(shape)]) if symbolic else shape
    if symbolic and case in _SQUARE.values():
        extents = ("m", "m")
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    result = reference(x)
    expected = result if isinstance(result, tuple) else (result,)
    outs = tuple(TensorSpec(s, str(w.dtype)) for s, w in zip(results(extents), expected, strict=True))
    kernel = build(KernelSpec("case", compute, (TensorSpec(extents, "float32"),), outs, pattern)).function
    actual = [tvm.tensor(np.full(np.shape(w), 77).astype(w.dtype)) for w in expected]
    kernel(tvm.tensor(x), *actual)
    for a, w in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), w, rtol=3e-6, atol=1e-6 * np.sqrt(x.size))


@pytest.mark.parametrize("name", _CASES)
def test_static_extents(name: str) -> None:
    for shape in _SHAPES:
        _check_case(_CASES[name], shape, symbolic=False)


@pytest.mark.parametrize("name", _CASES)
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # NumPy's mean of no elements
@pytest.mark.filterwarnings("ignore:Mean of empty slice:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:Degrees of freedom:RuntimeWarning")
def test_symbolic_extents(name: str) -> None:
    for shape in _SHAPES:
        _check_case(_CASES[name], shape, symbolic=True)
    for shape in _EMPTY:
        if name != "argmax of rows" or shape[1]:
            _check_case(_CASES[name], shape, symbolic=True)


@pytest.mark.parametrize("symbolic", [False, True])
def test_rows_that_read_each_other_share_no_loop(symbolic: bool) -> None:
    for size in (1, 5, 64, 100):
        _check_case(_SQUARE["row sums of transpose"], (size, size), symbolic)


@pytest.mark.parametrize("pattern", [*PATTERNS, "no such pattern"])
@pytest.mark.parametrize("name", ["chain", "transpose", "softmax", "norm", "sum of all"])
def test_a_pattern_that_does_not_fit_is_only_a_hint(name: str, pattern: str) -> None:
    compute, _, reference, results = _CASES[name]
    _check_case((compute, pattern, reference, results), (33, 50), symbolic=False)
    _check_case((compute, pattern, reference, results), (33, 50), symbolic=True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "int64", "int8"])
def test_sums_in_other_dtypes(dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="NumPy has no bfloat16")
    kind = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    x = np.random.default_rng(1).integers(-1, 2, (6, 100)).astype(kind)
    for extents in ((6, 100), ("m", "n")):
        for axis in (0, 1):
            args, outs = (TensorSpec(extents, dtype),), (TensorSpec((extents[1 - axis],), dtype),)
            spec = KernelSpec("sum", _reduce("sum", axis), args, outs, "reduce")
            out = tvm.tensor(np.zeros(x.shape[1 - axis], kind))
            build(spec).function(tvm.tensor(x), out)
            expected = x.astype(np.int64).sum(axis)
            np.testing.assert_array_equal(out.numpy().astype(np.int64), expected)


# Contractions.


def _product(left: bool, right: bool) -> Callable[[Any, Any], Any]:
    def compute(a: Any, b: Any) -> Any:
        k = tvm.te.reduce_axis((0, a.shape[0 if left else 1]), "k")
        shape = (a.shape[1 if left else 0], b.shape[0 if right else 1])

        def term(i: Any, j: Any) -> Any:
            return (a[k, i] if left else a[i, k]) * (b[j, k] if right else b[k, j])

        return tvm.te.compute(shape, lambda i, j: tvm.te.sum(term(i, j), axis=k), name="c")

    return compute


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_products_in_every_layout(left: bool, right: bool) -> None:
    rng = np.random.default_rng(2)
    for m, n, k in [(1, 1, 1), (64, 64, 64), (48, 32, 7), (64, 10, 128), (33, 17, 65), (1, 128, 200), (130, 96, 300)]:
        a, b = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
        x, y = np.ascontiguousarray(a.T if left else a), np.ascontiguousarray(b.T if right else b)
        for symbolic in (False, True):
            m_, n_, k_ = ("m", "n", "k") if symbolic else (m, n, k)
            left_shape, right_shape = (k_, m_) if left else (m_, k_), (n_, k_) if right else (k_, n_)
            args = tuple(TensorSpec(shape, "float32") for shape in (left_shape, right_shape))
            outs = (TensorSpec((m_, n_), "float32"),)
            spec = KernelSpec("product", _product(left, right), args, outs, "out_ewise_fusable")
            out = tvm.tensor(np.full((m, n), 5, np.float32))
            build(spec).function(tvm.tensor(x), tvm.tensor(y), out)
            np.testing.assert_allclose(out.numpy(), a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)


def test_product_with_an_epilogue_and_convolution() -> None:
    def dense(x: Any, w: Any, bias: Any) -> Any:
        y = tvm.topi.nn.dense(x, w)
        return tvm.topi.nn.relu(tvm.topi.add(y, bias))

    rng = np.random.default_rng(3)
    x, w, bias = (rng.normal(size=s).astype(np.float32) for s in ((40, 96), (64, 96), (64,)))
    tensors = tuple(TensorSpec(a.shape, "float32") for a in (x, w, bias))
    out = tvm.tensor(np.zeros((40, 64), np.float32))
    build(KernelSpec("dense", dense, tensors, (TensorSpec((40, 64), "float32"),), "out_ewise_fusable")).function(
        *map(tvm.tensor, (x, w, bias)), out
    )
    np.testing.assert_allclose(out.numpy(), np.maximum(x @ w.T + bias, 0), rtol=1e-4, atol=1e-4)

    def convolution(data: Any, weight: Any) -> Any:
        return tvm.topi.nn.conv2d_nchw(data, weight, 2, 1, 1)

    data, weight = rng.normal(size=(2, 8, 32, 32)).astype(np.float32), rng.normal(size=(24, 8, 3, 3)).astype(np.float32)
    padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    expected = np.einsum("ncyxhw,ochw->noyx", windows, weight)
    out = tvm.tensor(np.zeros(expected.shape, np.float32))
    build(
        KernelSpec(
            "convolution", convolution, (TensorSpec(data.shape, "float32"), TensorSpec(weight.shape, "float32")),
            (TensorSpec(expected.shape, "float32"),), "out_ewise_fusable",
        )
    ).function(tvm.tensor(data), tvm.tensor(weight), out)  # fmt: skip
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-4, atol=1e-4)


# Loop structure.


def _scheduled(name: str, shape: tuple[Any, ...], pattern: str = "") -> str:
    compute, declared, _, results = _CASES[name]
    dtype = "int64" if name == "argmax of rows" else "float32"
    outs = tuple(TensorSpec(s, dtype) for s in results(shape))
    func = prim_func(KernelSpec("case", compute, (TensorSpec(shape, "float32"),), outs, declared))
    return str(patterns.schedule(func, pattern or declared, targets.target("cpu")).script())


def _count_blocks(text: str) -> int:
    return sum(line.lstrip().startswith("with T.sblock(") for line in text.splitlines())


def test_elementwise_is_one_flat_vectorised_loop() -> None:
    text = _scheduled("chain", (30, 64))
    assert _count_blocks(text) == 1
    assert "T.vectorized(" in text
    assert "T.grid" not in text


def test_values_of_positions_keep_their_loops() -> None:
    """A flat loop would compute the positions of each element by divisions."""
    text = _scheduled("lower triangle", ("n", "m"))
    assert _count_blocks(text) == 1
    assert "//" not in text
    assert "%" not in text


def test_passes_of_softmax_share_one_row_loop() -> None:
    for shape in ((64, 256), (64, 250), ("m", "n")):
        text = _scheduled("softmax", shape)
        body = text[text.index("sblock_alloc_buffer") :]
        assert sum(line.startswith("    for ") for line in body.splitlines()) == 1
        assert body.count("T.vectorized(") >= 4


@pytest.mark.parametrize("name", ["chain", "softmax", "sum of rows", "sum of columns", "transpose"])
def test_only_large_static_work_is_parallel(name: str) -> None:
    assert "T.parallel(" in _scheduled(name, (2048, 2048))
    assert "T.parallel(" not in _scheduled(name, (64, 64))
    assert "T.parallel(" not in _scheduled(name, ("m", "n"))


def test_loops_over_one_element_are_not_parallel() -> None:
    """Threads divide the first loop of several elements: channels of one image, columns of one result row."""
    x = tvm.te.placeholder((1, 64, 128, 128), "float32", "x")
    k = tvm.te.reduce_axis((0, 7), "k")
    image = tvm.te.compute((1, 64, 128, 122), lambda n, c, h, w: tvm.te.sum(x[n, c, h, w + k], k), "image")
    rows = tvm.te.placeholder((1024, 1024), "float32", "rows")
    r = tvm.te.reduce_axis((0, 1024), "r")
    columns = tvm.te.compute((1, 1024), lambda i, j: tvm.te.sum(rows[r, j], r), "columns")
    for source, result, extent in ((x, image, 64 * 128), (rows, columns, 2)):
        func = tvm.create_prim_func([source, result])
        text = str(patterns.schedule(func, "reduce", targets.target("cpu")).script())
        assert f"T.parallel({extent})" in text


@pytest.mark.parametrize(("columns", "vectors"), [(56, None), (28, 16), (14, 8), (8, 8)])
def test_rows_are_not_fused_with_outer_loops(columns: int, vectors: int | None) -> None:
    """Fused loops would compute indices by divisions, element by element. Short rows get vectors, because LLVM unrolls
    them."""
    x = tvm.te.placeholder((64, 32, 1, 1), "float32", "x")
    y = tvm.te.compute((64, 32, 56, columns), lambda n, c, h, w: x[n, c, 0, 0], "y")
    func = tvm.create_prim_func([x, y])
    text = str(patterns.schedule(func, "broadcast", targets.target("cpu")).script())
    assert f"T.parallel({64 * 32 * 56})" in text
    assert ("T.vectorized" in text) == (vectors is not None)
    if vectors is not None:
        assert f"T.vectorized({min(vectors, targets.lanes(32))})" in text


def test_expensive_work_is_not_repeated() -> None:
    text = _scheduled("outer of expensive", (64, 64))
    assert _count_blocks(text) == 2


def test_products_are_tiled_and_packed() -> None:
    spec = TensorSpec((256, 256), "float32")
    func = prim_func(KernelSpec("product", _product(True, False), (spec, spec), (spec,), "out_ewise_fusable"))
    text = str(patterns.schedule(func, "out_ewise_fusable", targets.target("cpu")).script())
    assert "T.unroll(" in text
    assert "T.vectorized(" in text
    assert text.count("reindex") >= 2


# Robustness.


def test_classification() -> None:
    for name, (compute, pattern, _, results) in _CASES.items():
        dtype = "int64" if name == "argmax of rows" else "float32"
        outs = tuple(TensorSpec(s, dtype) for s in results((8, 8)))
        func = prim_func(KernelSpec("case", compute, (TensorSpec((8, 8), "float32"),), outs, pattern))
        assert patterns.classify(func) == pattern, name
    spec = TensorSpec((8, 8), "float32")
    func = prim_func(KernelSpec("product", _product(False, False), (spec, spec), (spec,), "opaque"))
    assert patterns.classify(func) == "out_ewise_fusable"
    assert patterns.classify(_sort()) == "opaque"


def _sort() -> Any:
    x = tvm.te.placeholder((16,), "float32", name="x")
    return tvm.create_prim_func([x, tvm.topi.sort(x)])


def test_functions_without_a_matching_rule_keep_their_loops() -> None:
    func = _sort()
    for pattern in (*PATTERNS, "unknown"):
        scheduled = patterns.schedule(func, pattern, targets.target("cpu"))
        module = tvm.build_tir(tvm.IRModule({"main": scheduled}), targets.target("cpu"))
        x = np.random.default_rng(0).normal(size=16).astype(np.float32)
        out = tvm.tensor(np.zeros_like(x))
        module["main"](tvm.tensor(x), out)
        np.testing.assert_array_equal(out.numpy(), np.sort(x))


def test_the_function_is_not_modified_and_keeps_its_attributes() -> None:
    spec = TensorSpec((64, 64), "float32")
    func = prim_func(KernelSpec("case", _softmax, (spec,), (spec,), "softmax")).with_attr("global_symbol", "mine")
    before = func.script()
    scheduled = patterns.schedule(func, "softmax", targets.target("cpu"))
    assert func.script() == before
    assert scheduled.attrs["global_symbol"] == "mine"


def test_the_axes_of_a_contraction() -> None:
    spec = TensorSpec((8, 8), "float32")
    sch = tvm.Schedule(prim_func(KernelSpec("p", _product(False, True), (spec, spec), (spec,), "opaque")))
    (block,) = blocks.list_blocks(sch)
    contraction = match_contraction(block)
    assert contraction is not None
    assert (contraction.row_axis, contraction.column_axis) == (0, 1)
    sch = tvm.Schedule(prim_func(KernelSpec("s", _reduce("sum", 1), (spec,), (TensorSpec((8,), "float32"),), "reduce")))
    assert match_contraction(blocks.list_blocks(sch)[0]) is None


@pytest.mark.parametrize("name", _CASES)
def test_cuda_schedules_bind_threads(name: str) -> None:
    compute, pattern, _, results = _CASES[name]
    target = tvm.Target({"kind": "cuda", "arch": "sm_80", "max_threads_per_block": 1024, "thread_warp_size": 32,
                         "max_shared_memory_per_block": 49152}, host=targets.target("cpu"))  # fmt: skip
    dtype = "int64" if name == "argmax of rows" else "float32"
    for shape in ((128, 256), ("m", "n")):
        outs = tuple(TensorSpec(s, dtype) for s in results(shape))
        func = prim_func(KernelSpec("case", compute, (TensorSpec(shape, "float32"),), outs, pattern))
        text = patterns.schedule(func, pattern, target).script()
        assert "threadIdx.x" in text


@pytest.mark.parametrize(("shape", "has_vectors"), [((64, 32), True), ((64, 30), False)])
def test_transposes_of_whole_tiles_have_vectors(shape: tuple[int, int], has_vectors: bool) -> None:
    function, _ = scheduled_function(sample("transpose", T(*shape), (1, 0)), "cpu", symbolic=False)
    assert ("T.vectorized(16)" in function.script()) == has_vectors
