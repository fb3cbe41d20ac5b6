"""Array helpers of tests: equal meta arrays and torch tensors, conversion, comparison, seeds and devices."""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from meta import dtype as dtypes
from meta.device import Device
from meta.eager.ndarray import NDArray, asarray
from meta.errors import DeviceError
from meta.testing.call import is_sequence
from meta.testing.tolerance import compare

if TYPE_CHECKING:
    import numpy as np
    import torch

F = TypeVar("F", bound=Callable[..., Any])


def to_torch(value: np.ndarray[Any, Any]) -> torch.Tensor:
    """A torch tensor with a copy of the values of a NumPy array (also of ml_dtypes.bfloat16)."""
    import numpy as np
    import torch

    # The device is named because torch.set_default_device may have changed the default.
    if str(value.dtype) == "bfloat16":
        return torch.as_tensor(_words(np.array(value)), device="cpu").view(torch.bfloat16)
    return torch.as_tensor(np.array(value), device="cpu")


def _words(value: Any) -> np.ndarray[Any, Any]:
    """The bits of an array of 16-bit numbers."""
    return value.view("uint16")


def to_numpy(value: Any) -> np.ndarray[Any, Any]:
    """The values of a meta array, a torch tensor or anything that NumPy converts, as a NumPy array."""
    import numpy as np

    if isinstance(value, NDArray):
        return value.detach().numpy()
    if type(value).__module__.partition(".")[0] == "torch":
        host = value.detach().cpu().resolve_conj().contiguous()
        if str(host.dtype) == "torch.bfloat16":
            import torch

            host = host.view(torch.uint16)
            return host.numpy(force=True).view(dtypes.to_numpy("bfloat16"))
        return host.numpy(force=True)  # force: torch represents some zeros without memory
    return np.asarray(value)


def randn_torch(
    shape: Sequence[int], *, device: Device | str = "cpu", dtype: str = "float32", requires_grad: bool = False,
    positive: bool = False, mean: float = 0.0, std: float = 1.0,
) -> tuple[NDArray, torch.Tensor]:  # fmt: skip
    """Normally distributed values as a meta array and an equal torch tensor, seeded by `numpy.random.seed`.

    positive: take absolute values plus 1e-5, for logarithms and roots.  mean, std: parameters of the distribution.
    requires_grad: make both leaves that require a gradient."""
    import numpy as np

    host = np.asarray(np.random.normal(mean, std, tuple(shape)))
    if positive:
        host = np.abs(host) + 1e-5
    host = host.astype(dtypes.to_numpy(dtypes.canonical(dtype)))
    ours = asarray(host, device=device, copy=True)
    theirs = to_torch(host).to(str(ours.device).replace("(", ":").rstrip(")"))
    if requires_grad:
        ours.requires_grad = True
        theirs.requires_grad_(True)
    return ours, theirs


def check(actual: object, expected: object, *, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """Raise AssertionError unless all values are within atol + rtol * |expected|.

    Takes meta arrays, torch tensors, NumPy arrays, numbers, and lists or tuples of them. Shapes must agree; dtypes
    may differ. Integers and booleans compare exactly."""
    if is_sequence(actual) and is_sequence(expected):
        if len(actual) != len(expected):
            raise AssertionError(f"check: {len(actual)} values against {len(expected)}")
        for a, b in zip(actual, expected, strict=True):
            check(a, b, rtol=rtol, atol=atol)
        return
    a, b = to_numpy(actual), to_numpy(expected)
    exact = not dtypes.is_inexact(str(a.dtype)) and not dtypes.is_inexact(str(b.dtype))
    compare("check", a, b.astype(a.dtype), tolerance=(0.0, 0.0) if exact else (rtol, atol))


def with_seed(seed: int | None = None) -> Callable[[F], F]:
    """A decorator that seeds Python's, NumPy's and torch's generators and adds the seed to the error of a failed test.

    seed: None draws a seed. The environment variable META_TEST_SEED overrides it."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def run(*args: object, **kwargs: object) -> Any:
            override = os.environ.get("META_TEST_SEED")
            used = int(override) if override else random.SystemRandom().randrange(2**31) if seed is None else seed
            _seed_all(used)
            try:
                return function(*args, **kwargs)
            except Exception as error:
                note = getattr(error, "add_note", None)  # from Python 3.11 on
                if note is not None:
                    note(f"seed {used}: repeat with META_TEST_SEED={used}")
                raise

        return run  # type: ignore[return-value]

    return decorate


def _seed_all(seed: int) -> None:
    import sys

    import numpy as np

    random.seed(seed)
    np.random.seed(seed % 2**32)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def get_testable_devices() -> list[str]:
    """The devices that tests run on: "cpu", and "cuda" if this machine has one.

    The environment variable META_TEST_DEVICES (names separated by commas) overrides the list."""
    override = os.environ.get("META_TEST_DEVICES")
    if override:
        return [name.strip() for name in override.split(",")]
    try:
        asarray([0.0], device="cuda")
    except DeviceError:
        return ["cpu"]
    return ["cpu", "cuda"]
