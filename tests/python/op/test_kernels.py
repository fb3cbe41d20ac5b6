"""Compiled functions of other packages as implementations: eager calls, programs, saved programs, gradients, errors."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import ArgumentError, FileError, KernelError, NotSupportedError, RegistryError
from meta.ir.type import TupleType
from meta.schema import Arg, Bool, IntTuple, Schema, Str, Tensor
from meta.testing import OpCheckError, opcheck
from tests.python.recorded import array

pytestmark = pytest.mark.usefixtures("remove_operators")
if shutil.which("ninja") is None or not any(map(shutil.which, ("c++", "g++", "clang++"))):
    pytest.skip("no C++ compiler, or no ninja: kernels are compiled here", allow_module_level=True)

SOURCE = """
#include <cmath>
using tvm::ffi::Optional;
using tvm::ffi::String;
using tvm::ffi::TensorView;

static float* data(const TensorView& x) { return static_cast<float*>(x.data_ptr()); }
static int64_t count(const TensorView& x) { int64_t n = 1; for (int64_t d : x.shape()) n *= d; return n; }

void double_it(TensorView x, TensorView out) { for (int64_t i = 0; i < count(x); ++i) data(out)[i] = 2 * data(x)[i]; }
void triple_it(TensorView out, TensorView x) { for (int64_t i = 0; i < count(x); ++i) data(out)[i] = 3 * data(x)[i]; }

void rms_norm(TensorView x, Optional<TensorView> scale, double eps, TensorView out) {
  if (eps > 0.5) TVM_FFI_THROW(ValueError) << "eps is " << eps;
  int64_t n = x.size(x.ndim() - 1);
  for (int64_t row = 0; row < count(x); row += n) {
    double sum = 0;
    for (int64_t i = row; i < row + n; ++i) sum += data(x)[i] * data(x)[i];
    for (int64_t i = 0; i < n; ++i)
      data(out)[row + i] = data(x)[row + i] / std::sqrt(sum / n + eps) * (scale ? data(*scale)[i] : 1.f);
  }
}

void takes_all(TensorView low, TensorView high, String name, tvm::ffi::Shape sizes, bool flag, TensorView x) {
  if (name != "short" && name != "a name of more than seven letters") TVM_FFI_THROW(ValueError) << name;
  data(low)[0] = sizes.size() * 10 + flag;
  data(high)[0] = sizes[0];
}
tvm::ffi::Tensor returns(tvm::ffi::Tensor x, TensorView out) { return x; }
int64_t returns_code(TensorView x, TensorView out) { return 0; }
void writes_outside(TensorView x, TensorView out) { double_it(x, out); data(out)[count(x)] = 1; }
void reads_outside(TensorView x, TensorView out) { double_it(x, out); data(out)[0] = data(x)[count(x)]; }
"""
FUNCTIONS = [
    "double_it", "triple_it", "rms_norm", "takes_all", "returns", "returns_code", "writes_outside", "reads_outside",
]  # fmt: skip


@pytest.fixture(scope="module")
def built() -> Any:
    return meta.kernels.compile(SOURCE, FUNCTIONS)


@pytest.fixture
def hub() -> Iterator[Any]:
    with meta.register_dialect("hub", plevel=30) as dialect:
        yield dialect


def frames_of(function: Any, *args: Any) -> list[str]:
    """The names of Python's functions that a call enters."""
    names: list[str] = []
    sys.setprofile(lambda frame, event, _: names.append(frame.f_code.co_name) if event == "call" else None)
    try:
        function(*args)
    finally:
        sys.setprofile(None)
    return names


# --- eager calls -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 3, 4)])
def test_results_last_and_first(built: Any, hub: Any, shape: tuple[int, ...]) -> None:
    x = array(*shape)
    assert hub.from_ffi("tanh", built.double_it).from_ffi(meta.exp, built.triple_it, out="first") is hub
    np.testing.assert_array_equal(meta.tanh(x).numpy(), 2 * x.numpy())
    np.testing.assert_array_equal(meta.exp(x).numpy(), 3 * x.numpy())


def test_arguments_by_name_and_optional_tensors(built: Any, hub: Any) -> None:
    x, scale = array(4, 8), array(8, seed=1)
    with meta.with_dialect("tvm"):
        expected, unscaled = meta.rms_norm(x, scale, eps=0.1), meta.rms_norm(x)
    hub.from_ffi("rms_norm", built.rms_norm, takes=("x", "scale", "eps"))
    np.testing.assert_allclose(meta.rms_norm(x, scale, eps=0.1).numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(meta.rms_norm(x).numpy(), unscaled.numpy(), rtol=1e-5, atol=1e-6)


def test_texts_numbers_and_several_results(built: Any, hub: Any) -> None:
    schema = Schema("described", Arg("x", Tensor), Arg("name", Str), Arg("sizes", IntTuple), Arg("flag", Bool, True))

    @meta.define("described", schema, outputs=("low", "high"))
    def described(x: Any, name: str, sizes: tuple[int, ...], flag: bool) -> Any:
        return TupleType((x, x))

    hub.from_ffi("described", built.takes_all, takes=("name", "sizes", "flag", "x"), out="first")
    for name in ("short", "a name of more than seven letters"):
        low, high = meta.ops.described(array(1), name, (7, 8, 9), False)
        assert (low.tolist(), high.tolist()) == ([30.0], [7.0])
    with pytest.raises(
        KernelError, match=r"\[described\] its hub implementation \(takes_all\) raised ValueError: other"
    ):
        meta.ops.described(array(1), "other", (7,))


def test_explain_says_what_it_refuses(built: Any, hub: Any) -> None:
    def only_float32(call: Any) -> str | None:
        return None if call.tensors()[0].dtype == "float32" else "for float32"

    hub.from_ffi("rms_norm", {"cpu": built.rms_norm}, takes=("x", "scale", "eps"), accepts=only_float32)
    x = array(4, 8)
    assert meta.explain("rms_norm", x).chosen == meta.explain("rms_norm", x, axis=1).chosen == "hub"
    assert "hub (plevel 30): 'axis' is (0,), and the function takes no 'axis': it is for (-1,)" in str(
        meta.explain("rms_norm", x, axis=0)
    )
    assert "hub (plevel 30): for float32" in str(meta.explain("rms_norm", x.cast("float64")))
    assert "'x' has no elements" in str(meta.explain("rms_norm", meta.zeros((0, 8))))
    assert meta.rms_norm(meta.zeros((0, 8))).shape == (0, 8)
    hub.from_ffi("tanh", {"cuda": built.double_it})
    assert "hub (plevel 30): no function for cpu" in str(meta.explain("tanh", x))
    hub.from_ffi("add", built.rms_norm)
    assert "'x2' is a number, not a tensor" in str(meta.explain("add", x, 2.0))


def test_strided_arrays_of_other_libraries(built: Any, hub: Any) -> None:
    hub.from_ffi("tanh", built.double_it)
    x = np.arange(12, dtype="float32").reshape(3, 4).T[::2]
    np.testing.assert_array_equal(meta.tanh(meta.asarray(x)).numpy(), 2 * x)


def test_gradient_autocast_and_vmap(built: Any, hub: Any) -> None:
    """The kernel has no backward: the operator's gradient is computed by others."""
    hub.from_ffi("rms_norm", built.rms_norm, takes=("x", "scale", "eps"),
                 accepts=lambda call: None if call.tensors()[0].dtype == "float32" else "for float32")  # fmt: skip
    x = array(4, 8).detach()
    x.requires_grad = True
    meta.rms_norm(x).sum().backward()
    with meta.with_dialect("tvm"):
        y = x.detach()
        y.requires_grad = True
        meta.rms_norm(y).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-4, atol=1e-5)
    with meta.amp.autocast("bfloat16"):  # which runs norms in float32
        assert meta.rms_norm(x.detach()).dtype == "float32"
    batched = meta.autograd.vmap(meta.rms_norm)(array(3, 4, 8))
    np.testing.assert_allclose(batched.numpy(), meta.rms_norm(array(3, 4, 8)).numpy(), rtol=1e-6)


# --- programs --------------------------------------------------------------------------------------------------------


def program(x: Any) -> Any:
    return meta.rms_norm(x * 2.0, eps=0.125) + 1.0


def test_a_program_calls_it_without_python(built: Any, hub: Any) -> None:
    x = array(4, 8)
    with meta.with_dialect("tvm"):
        compiled = meta.vm.compile(meta.trace(program))
        expected = compiled(x).numpy()
    frames = frames_of(compiled, x)
    hub.from_ffi("rms_norm", built.rms_norm, takes=("x", "scale", "eps"))
    with_kernel = meta.vm.compile(meta.trace(program))
    np.testing.assert_allclose(with_kernel(x).numpy(), expected, rtol=1e-5)
    assert "hub.rms_norm(float32[4x8])" in str(with_kernel.explain(x))
    assert sorted(frames_of(with_kernel, x)) == sorted(frames)


def test_a_program_names_the_kernel_that_raises(built: Any, hub: Any) -> None:
    hub.from_ffi("rms_norm", built.rms_norm, takes=("x", "scale", "eps"))
    compiled = meta.vm.compile(meta.trace(lambda x: meta.rms_norm(x + 0.0, eps=0.75)))
    text = r"^\[rms_norm\] its hub implementation \(rms_norm\) raised ValueError: eps is 0.75"
    with pytest.raises(KernelError, match=text):
        compiled(array(4, 8))


def test_saved_programs_find_the_kernel_again(built: Any, tmp_path: Path) -> None:
    path, x = tmp_path / "model.program", array(4, 8)
    with meta.register_dialect("hub", plevel=30) as hub:
        hub.from_ffi("rms_norm", built.rms_norm, takes=("x", "scale", "eps"))
        compiled = meta.vm.compile(meta.trace(program))
        expected = compiled(x).numpy()
        compiled.save(path)
        np.testing.assert_array_equal(meta.vm.load(path)(x).numpy(), expected)
        with pytest.raises(NotSupportedError, match=r"the program calls hub\.rms_norm; expected only kernels of TVM"):
            compiled.save(tmp_path / "model.so", format="library")
    with pytest.raises(FileError, match=r"no dialect is called 'hub'.*import the package that registers them"):
        meta.vm.load(path)
    with meta.register_dialect("hub", plevel=30) as hub:
        changed = meta.kernels.compile(SOURCE.replace("eps > 0.5", "eps > 0.25"), FUNCTIONS)
        hub.from_ffi("rms_norm", changed.rms_norm, takes=("x", "scale", "eps"))
        with pytest.raises(FileError, match=r"calls meta\.hub\.rms_norm\.\w+, which is another function here"):
            meta.vm.load(path)


# --- checks and errors -----------------------------------------------------------------------------------------------


def test_opcheck_accepts_a_right_kernel(built: Any, hub: Any) -> None:
    hub.from_ffi("rms_norm", built.rms_norm, takes=("x", "scale", "eps"),
                 accepts=lambda call: None if call.tensors()[0].dtype == "float32" else "for float32")  # fmt: skip
    assert opcheck("rms_norm", (array(4, 8), array(8))).ok


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("double_it", "dialects.*hub"),
        ("writes_outside", r"the hub kernel writes outside of its result: 4 bytes beside it changed"),
        ("reads_outside", r"the hub kernel reads outside of its arguments"),
    ],
)
def test_opcheck_finds_wrong_kernels(built: Any, hub: Any, function: str, problem: str) -> None:
    """Before use: a dialect of plevel 0 runs by name only."""
    hub.set_plevel(0)
    hub.from_ffi("tanh", getattr(built, function), accepts=lambda call: _float32(call))
    x = array(3, 5)
    assert meta.explain("tanh", x).chosen == "tvm"
    with pytest.raises(OpCheckError, match=problem):
        opcheck("tanh", (x,))


def _float32(call: Any) -> str | None:
    return None if call.tensors()[0].dtype == "float32" else "for float32"


@pytest.mark.parametrize("function", ["returns", "returns_code"])
def test_a_kernel_that_returns(built: Any, hub: Any, function: str) -> None:
    hub.from_ffi("tanh", getattr(built, function))
    text = rf"\[tanh\] its hub implementation \({function}\) returned a value; expected that it writes its results"
    with pytest.raises(KernelError, match=text):
        meta.tanh(array(3))
    with pytest.raises(KernelError, match=text):
        meta.vm.compile(meta.trace(meta.tanh))(array(3))


def test_a_kernel_of_other_arguments(built: Any, hub: Any) -> None:
    hub.from_ffi("exp", built.rms_norm)
    with pytest.raises(KernelError, match=r"\[exp\] .* raised TypeError: .*Expected 4 but got 2 arguments"):
        meta.exp(array(3))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"function": len}, r"\[hub.tanh\] its implementation is builtin_function_or_method .*from_torch"),
        ({"function": {"gpu": None}}, "no kind of device is called 'gpu'"),
        ({"function": {}}, "there is no function"),
        ({"out": "middle"}, "out is 'middle'"),
        ({"takes": ("y",)}, "takes names the argument 'y'"),
        ({"takes": "x"}, "takes is 'x'"),
        ({"takes": ()}, "takes leaves out 'x'"),
        ({"accepts": 3}, "accepts is int 3"),
    ],
)
def test_refuses_bad_registrations(built: Any, hub: Any, options: dict[str, Any], problem: str) -> None:
    options = {"function": built.double_it, **options}
    with pytest.raises(RegistryError, match=problem):
        hub.from_ffi("tanh", options.pop("function"), **options)


def test_functions_of_modules_and_their_names(built: Any, hub: Any) -> None:
    hub.from_ffi("tanh", built.double_it.function)  # as tvm_ffi.Module has it
    assert meta.tanh(array(3)).tolist() == (2 * array(3).numpy()).tolist()
    assert "double_it" in dir(built)
    with pytest.raises(AttributeError, match=r"have no function 'doubleit'; did you mean 'double_it'\?"):
        _ = built.doubleit


# --- compilation -----------------------------------------------------------------------------------------------------


def test_compiles_once(built: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from meta.op.user.kernels import compiling

    monkeypatch.setattr(compiling, "_compiled", lambda *_: pytest.fail("it was compiled again"))
    again = meta.kernels.compile(SOURCE, FUNCTIONS)
    assert again.digest == built.digest
    assert repr(again).startswith("<KernelLibrary a compiled source: double_it, ")


@pytest.mark.parametrize(
    ("args", "kind", "problem"),
    [
        (("void f(tvm::ffi::TensorView x) { return 3 }", ["f"]), KernelError, "the source does not compile: .*error"),
        (("", ["f"]), ArgumentError, "source is ''"),
        (("void f();", "f"), ArgumentError, "functions is 'f'"),
        (("void f();", []), ArgumentError, r"functions is \[\]"),
    ],
)
def test_refuses_bad_sources(args: Any, kind: type[Exception], problem: str) -> None:
    with pytest.raises(kind, match=problem):
        meta.kernels.compile(*args)


def test_says_that_the_compiler_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotSupportedError, match="ninja is missing"):
        meta.kernels.compile("void missing_compiler(tvm::ffi::TensorView x) {}", ["missing_compiler"])
