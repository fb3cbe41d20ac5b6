"""The public helpers of meta.testing."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

import meta
from meta.errors import TypeInferenceError
from meta.testing import ErrorCase, Sample, T, check, get_testable_devices, randn_torch, with_seed
from meta.testing.tolerance import compare


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_randn_torch_gives_equal_pairs(dtype: str) -> None:
    ours, theirs = randn_torch((2, 3), dtype=dtype, requires_grad=True, mean=1.0, std=0.5)
    assert ours.dtype == dtype
    assert str(theirs.dtype) == f"torch.{dtype}"
    assert ours.requires_grad
    assert theirs.requires_grad
    check(ours, theirs, rtol=0, atol=0)


def test_randn_torch_positive_values_and_scalars() -> None:
    assert (np.asarray(randn_torch((100,), positive=True)[0]) > 0).all()
    assert randn_torch(())[0].shape == ()


def test_check_compares_arrays_numbers_and_sequences() -> None:
    x = meta.array([1.0, 2.0])
    check(x, torch.tensor([1.0, 2.0]))
    check(x, [1.0, 2.0])
    check((x, 3), ([1.0, 2.0], 3))
    with pytest.raises(AssertionError, match=r"1 of 2 elements differ; at \(1,\) 2.0, expected 2.1"):
        check(x, np.array([1.0, 2.1]))
    with pytest.raises(AssertionError, match=r"shape \(2,\), expected \(1, 2\)"):
        check(x, np.array([[1.0, 2.0]]))
    with pytest.raises(AssertionError, match="2 values against 1"):
        check((x, x), (x,))


def test_check_compares_integers_exactly() -> None:
    check(meta.array([1, 2]), torch.tensor([1, 2]))
    with pytest.raises(AssertionError, match="1 of 2"):
        check(meta.array([10**6, 2]), torch.tensor([10**6 + 1, 2]), rtol=0.1)


def array(*values: float, dtype: str = "float32") -> np.ndarray:
    return np.array(values, dtype)


def test_compare_handles_nan_and_infinity() -> None:
    compare("x", array(np.nan, np.inf, -np.inf), array(np.nan, np.inf, -np.inf))
    for actual, expected in ((np.nan, 1), (1, np.nan), (np.inf, -np.inf), (1e38, np.inf), (np.inf, 1e38)):
        with pytest.raises(AssertionError):
            compare("x", array(actual), array(expected))


def test_oracle_rule_allows_twice_the_reference_error() -> None:
    """A value passes within twice the reference's error of the float64 result, and fails beyond it."""
    exact = array(1.0, dtype="float64")
    compare("x", array(0.9992), array(1.0004), oracle=exact)
    with pytest.raises(AssertionError, match=r"in float64 1.0"):
        compare("x", array(0.9991), array(1.0004), oracle=exact)
    with pytest.raises(AssertionError):
        compare("x", array(0.9992), array(1.0004))


def test_compare_rejects_different_dtypes() -> None:
    with pytest.raises(AssertionError, match="dtype float32, expected float64"):
        compare("x", array(1.0), array(1.0, dtype="float64"))


def test_with_seed_is_reproducible_and_reports_the_seed() -> None:
    @with_seed(3)
    def draw() -> float:
        return float(np.random.rand())

    assert draw() == draw()

    @with_seed(5)
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        fail()
    if sys.version_info >= (3, 11):
        assert "META_TEST_SEED=5" in caught.value.__notes__[0]


def test_with_seed_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    @with_seed()
    def draw() -> float:
        return float(np.random.rand())

    monkeypatch.setenv("META_TEST_SEED", "7")
    assert draw() == draw()


def test_testable_devices_follow_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert get_testable_devices()[0] == "cpu"
    monkeypatch.setenv("META_TEST_DEVICES", "cpu, cuda")
    assert get_testable_devices() == ["cpu", "cuda"]


def test_sample_values_depend_on_the_row_alone() -> None:
    rows = [Sample("add", T(4), T(4), ref=torch.add) for _ in range(2)]
    (a, b), _ = rows[0].numpy("float32")
    assert (a == rows[1].numpy("float32")[0][0]).all()
    assert (a != b).any()
    assert rows[0].numpy("bfloat16")[0][0].dtype == meta.dtype.to_numpy("bfloat16")


def test_values_avoid_given_points() -> None:
    values = T(1000, low=-2, high=2, avoid=(0, 1)).values("float64", "")
    assert np.abs(values).min() >= 0.2
    assert np.abs(values - 1).min() >= 0.2
    distinct = T(10, distinct=True).values("float64", "")
    assert np.diff(np.sort(distinct)).min() > 0.19


def test_integers_in_place_of_floats_keep_their_signs() -> None:
    assert T(1000, low=0.1, high=2).values("int32", "").min() >= 1
    assert T(1000).values("int32", "").min() == -8
    assert T(1000, avoid=(0,)).values("int64", "").all()


def test_type_function_decides_the_dtypes_of_a_sample() -> None:
    assert Sample("softmax", T(3), ref=torch.softmax).run_dtypes(("int32",)) == (
        "float32",
        "float64",
        "float16",
        "bfloat16",
    )
    assert "int32" in Sample("add", T(3), 1, ref=torch.add).run_dtypes(("int32",))
    assert Sample("argmax", T(3, dtype="int64"), ref=torch.argmax).run_dtypes() == ("",)
    assert Sample("softmax", T(3), ref=torch.softmax, dtypes=("float64",)).run_dtypes() == ("float64",)


def test_rejects_invalid_samples() -> None:
    with pytest.raises(ValueError, match="give either ref or check"):
        Sample("add", T(3))
    with pytest.raises(ValueError, match="`tol` needs a reason"):
        Sample("add", T(3), ref=torch.add, tol={"float32": (1, 1)})
    case = ErrorCase("add", T(3), error=TypeInferenceError, match="a b")
    assert repr(case) == "add-a_b"


def test_imports_without_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import meta.testing as t; [getattr(t, n) for n in dir(t)]"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_each_part_of_infinite_complex_numbers_is_compared() -> None:
    infinite = np.array([complex(np.inf, 0.5), complex(1.0, -np.inf)])
    near = np.array([complex(np.inf, 0.5000001), complex(1.0000001, -np.inf)])
    check(near, infinite, rtol=1e-5, atol=0.0)
    for wrong in (complex(np.inf, 0.6), complex(-np.inf, 0.5), complex(1e300, 0.5), complex(np.inf, np.nan)):
        with pytest.raises(AssertionError, match="1 of 2 elements differ"):
            check(np.array([wrong, infinite[1]]), infinite, rtol=1e-5, atol=0.0)
