"""Initialisers: functions that overwrite an array with initial values, and return it.

    meta.nn.init.kaiming_normal_(layer.w, nonlinearity="relu")
    meta.nn.init.zeros_(layer.b)

The fan in of an array (out, in, *window) is in times the window, its fan out is out times the window. Random values
come from `generator` (a meta.random.Generator), by default the generator of `meta.random.seed`.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import meta
from meta import random
from meta.eager.ndarray import NDArray, array
from meta.errors import ArgumentError, did_you_mean
from meta.lazy import missing

if TYPE_CHECKING:
    from meta.random.generator import Generator

__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_",
    "orthogonal_", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
]  # fmt: skip

_GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3.0, "relu": math.sqrt(2.0), "selu": 0.75}
_STEPS = 2**16
_TAIL = 9.0
"""Standard deviations behind which a normal distribution has less than 1e-18 of its mass."""


def uniform_(x: NDArray, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> NDArray:
    """Numbers uniform in [a, b)."""
    return _filled(x, random.uniform(x.shape, a, b, x.dtype, x.device, generator))


def normal_(x: NDArray, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> NDArray:
    """Numbers of a normal distribution."""
    return _filled(x, random.normal(x.shape, mean, std, x.dtype, x.device, generator))


def trunc_normal_(
    x: NDArray, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Generator | None = None
) -> NDArray:
    """Numbers of a normal distribution, truncated to [a, b]: the distribution function is inverted by interpolation
    between 2**16 places. Runs on the host.

    Raises ArgumentError unless a < b and std > 0."""
    np: Any = import_module("numpy")
    if not (a < b and std > 0):
        raise ArgumentError("trunc_normal_", f"a is {a}, b is {b}, std is {std}", "a < b and a positive std")
    low, high = (a - mean) / std, (b - mean) / std
    # Of the lower tail the distribution function is exact to the last digits, of the upper one only its complement is.
    side = -1.0 if low > 0 else 1.0
    ends = sorted((side * low, side * high))
    near = min(ends[1], _TAIL)
    places = np.linspace(max(ends[0], min(-_TAIL, near - _TAIL)), near, _STEPS)
    below = np.array([0.5 * math.erfc(-z / math.sqrt(2.0)) for z in places])
    u = random.uniform(x.shape, dtype="float64", generator=generator).numpy()
    z = np.interp(below[0] + u * (below[-1] - below[0]), below, places)
    values = np.clip(mean + std * side * z, a, b)
    return _filled(x, array(values, x.dtype, x.device))


def constant_(x: NDArray, val: float) -> NDArray:
    """`val` everywhere."""
    return _filled(x, meta.full(x.shape, val, x.dtype, x.device))


def zeros_(x: NDArray) -> NDArray:
    """0 everywhere."""
    return constant_(x, 0)


def ones_(x: NDArray) -> NDArray:
    """1 everywhere."""
    return constant_(x, 1)


def eye_(x: NDArray) -> NDArray:
    """1 on the diagonal of a matrix, 0 elsewhere. Raises ArgumentError unless x has two axes."""
    if x.ndim != 2:
        raise ArgumentError("eye_", f"'x' has shape {x.shape}", "two axes")
    return _filled(x, meta.eye(x.shape[0], x.shape[1], dtype=x.dtype, device=x.device))


def dirac_(x: NDArray, groups: int = 1) -> NDArray:
    """Weights of a convolution that copies its input channels, as many as there are: 1 in the middle of the window from
    channel i to channel i of each group, 0 elsewhere. Raises ArgumentError for other than 3 to 5 axes, and for groups
    that do not divide axis 0."""
    np: Any = import_module("numpy")
    if x.ndim not in (3, 4, 5):
        raise ArgumentError("dirac_", f"'x' has shape {x.shape}", "3, 4 or 5 axes")
    if groups < 1 or x.shape[0] % groups:
        raise ArgumentError("dirac_", f"groups is {groups} and 'x' has shape {x.shape}", "a divisor of axis 0")
    values, size = np.zeros(x.shape), x.shape[0] // groups
    middle = tuple(n // 2 for n in x.shape[2:])
    for group in range(groups):
        for i in range(min(size, x.shape[1])):
            values[(group * size + i, i, *middle)] = 1.0
    return _filled(x, array(values, x.dtype, x.device))


def sparse_(x: NDArray, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> NDArray:
    """Normal with a standard deviation, and ceil(sparsity * rows) random zeros in each column of a matrix (J. Martens,
    "Deep learning via Hessian-free optimization", 2010). Runs on the host.

    sparsity: a fraction from 0 to 1. Raises ArgumentError for another one, and unless x has two axes."""
    np: Any = import_module("numpy")
    if x.ndim != 2 or not 0 <= sparsity <= 1:
        raise ArgumentError("sparse_", f"'x' has shape {x.shape} and sparsity is {sparsity}", "two axes, and 0 to 1")
    values = random.normal(x.shape, 0.0, std, "float64", generator=generator).numpy(copy=True)
    order = np.argsort(random.uniform(x.shape, dtype="float64", generator=generator).numpy(), axis=0)
    np.put_along_axis(values, order[: math.ceil(sparsity * x.shape[0])], 0.0, axis=0)
    return _filled(x, array(values, x.dtype, x.device))


def xavier_uniform_(x: NDArray, gain: float = 1.0, generator: Generator | None = None) -> NDArray:
    """Uniform in +-gain * sqrt(6 / (fan in + fan out)) (X. Glorot, Y. Bengio, "Understanding the difficulty of training
    deep feedforward neural networks", 2010). Raises ArgumentError for fewer than two axes."""
    bound = gain * math.sqrt(6.0 / sum(_fans("xavier_uniform_", x)))
    return uniform_(x, -bound, bound, generator)


def xavier_normal_(x: NDArray, gain: float = 1.0, generator: Generator | None = None) -> NDArray:
    """Normal with standard deviation gain * sqrt(2 / (fan in + fan out)) (see xavier_uniform_). Raises ArgumentError
    for fewer than two axes."""
    return normal_(x, 0.0, gain * math.sqrt(2.0 / sum(_fans("xavier_normal_", x))), generator)


def kaiming_uniform_(
    x: NDArray, a: float = 0.0, mode: Literal["fan_in", "fan_out"] = "fan_in", nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> NDArray:  # fmt: skip
    """Uniform in +-gain * sqrt(3 / fan), with the gain of `nonlinearity` (K. He et al., "Delving Deep into Rectifiers",
    2015). a: negative slope of "leaky_relu". Raises ArgumentError for fewer than two axes and unknown names."""
    bound = math.sqrt(3.0) * _kaiming_std("kaiming_uniform_", x, a, mode, nonlinearity)
    return uniform_(x, -bound, bound, generator)


def kaiming_normal_(
    x: NDArray, a: float = 0.0, mode: Literal["fan_in", "fan_out"] = "fan_in", nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> NDArray:  # fmt: skip
    """Normal with standard deviation gain / sqrt(fan) (see kaiming_uniform_)."""
    return normal_(x, 0.0, _kaiming_std("kaiming_normal_", x, a, mode, nonlinearity), generator)


def orthogonal_(x: NDArray, gain: float = 1.0, generator: Generator | None = None) -> NDArray:
    """A random orthogonal matrix times gain, of the axes but the first as one: the smaller of rows and columns are
    orthonormal (A. Saxe et al., "Exact solutions to the nonlinear dynamics of learning", 2013). Runs on the host.

    Raises ArgumentError for fewer than two axes."""
    np: Any = import_module("numpy")
    if x.ndim < 2:
        raise ArgumentError("orthogonal_", f"'x' has shape {x.shape}", "at least two axes")
    rows, columns = x.shape[0], math.prod(x.shape[1:])
    sides = (max(rows, columns), min(rows, columns))
    q, r = np.linalg.qr(random.normal(sides, dtype="float64", generator=generator).numpy())
    q = q * np.sign(np.diag(r))  # uniform over all orthogonal matrices (F. Mezzadri, 2007)
    matrix = q if rows >= columns else q.T
    return _filled(x, array(gain * matrix.reshape(x.shape), x.dtype, x.device))


def fan_in_bound(fan_in: int) -> float:
    """1 / sqrt(fan in), the bound of the uniform numbers that most layers start with. 0 for sizes that no array has,
    which are refused when the array is made."""
    return 1 / math.sqrt(fan_in) if 0 < fan_in < 2**63 else 0.0


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which an activation shrinks standard deviations, inverted: 1 for "linear" and "sigmoid", 5/3 for
    "tanh", sqrt(2) for "relu", 3/4 for "selu", sqrt(2 / (1 + param**2)) for "leaky_relu" with negative slope `param`
    (0.01). Names of convolutions count as "linear". Raises ArgumentError for other names."""
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1.0 + (0.01 if param is None else param) ** 2))
    name = "linear" if nonlinearity.startswith("conv") else nonlinearity
    if name not in _GAINS:
        names = [*_GAINS, "leaky_relu"]
        raise ArgumentError(
            "calculate_gain", f"nonlinearity is {nonlinearity!r}", ", ".join(names), did_you_mean(name, names)
        )
    return _GAINS[name]


def __getattr__(name: str) -> Any:
    return missing(__name__, name)


def __dir__() -> list[str]:
    return sorted(__all__)


def _filled(x: NDArray, value: NDArray) -> NDArray:
    with meta.no_grad():
        x.update(value)
    return x


def _fans(where: str, x: NDArray) -> tuple[int, int]:
    """Fan in and fan out."""
    if x.ndim < 2:
        raise ArgumentError(where, f"'x' has shape {x.shape}", "at least two axes", "use normal_ or uniform_")
    window = math.prod(x.shape[2:])
    return x.shape[1] * window, x.shape[0] * window


def _kaiming_std(where: str, x: NDArray, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(where, f"mode is {mode!r}", '"fan_in" or "fan_out"')
    fan = _fans(where, x)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)
