"""Gradients against finite differences, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meta.eager.engine import grad
from meta.eager.ndarray import NDArray, array
from meta.errors import GradientError
from meta.modes import enable_grad, no_grad
from meta.op.grad.rule import as_tuple

if TYPE_CHECKING:
    import numpy as np

    Host = np.ndarray[Any, Any]

Fn = Callable[..., Any]


def gradcheck(
    fn: Fn, inputs: NDArray | Sequence[NDArray], *, eps: float = 1e-6, rtol: float = 1e-3, atol: float = 1e-5,
    directions: int | None = None,
) -> bool:  # fmt: skip
    """Compare the gradients of `fn(*inputs)` with central differences of step `eps`.

    fn: takes and returns arrays (one or a tuple); must give the same result for the same values.  inputs: arrays of
    dtype float64 that require a gradient are checked.  Every input element is moved, and the change of the results is
    compared with the gradient along one random direction of the results (a vector-Jacobian product), so the cost is two
    calls of `fn` an element. Returns True, or raises GradientError naming the worst element.

    directions: with a number, an input of more elements is moved as a whole along so many random directions, each
    element by `eps` up or down, so the cost is two calls of `fn` a direction. An error in one element then hides behind
    `rtol` of the sum over all, so give a smaller `rtol`."""
    xs = (inputs,) if isinstance(inputs, NDArray) else tuple(inputs)
    _check("gradcheck", fn, xs, _checked(xs), _Differences(eps, rtol, atol, directions))
    return True


def gradgradcheck(
    fn: Fn, inputs: NDArray | Sequence[NDArray], *, eps: float = 1e-6, rtol: float = 1e-3, atol: float = 1e-5,
    directions: int | None = None,
) -> bool:  # fmt: skip
    """`gradcheck` of the gradient of `fn`, as a function of the inputs and of the gradient of the results.

    Arguments, result and errors are the same as for gradcheck."""
    xs = (inputs,) if isinstance(inputs, NDArray) else tuple(inputs)
    checked = _checked(xs)
    with enable_grad():
        ys = _floating(fn(*[_leaf(x) if x.requires_grad else x for x in xs]))
    flows = [i for i, y in enumerate(ys) if y.requires_grad]
    dys = [
        _leaf(array(d, device=ys[i].device)) for i, d in zip(flows, _directions([ys[i] for i in flows]), strict=True)
    ]

    def gradient(*args: NDArray) -> tuple[NDArray, ...]:
        moved, dys = args[: len(xs)], args[len(xs) :]
        leaves = [_leaf(x) if i in checked and not x.requires_grad else x for i, x in enumerate(moved)]
        with enable_grad():
            ys = _floating(fn(*leaves))
        inputs = [leaves[i] for i in checked]
        gradients = grad([ys[i] for i in flows], inputs, dys, create_graph=True, allow_unused=True) if flows else ()
        return tuple(g for g in gradients if g is not None)

    values = (*xs, *dys)
    _check("gradgradcheck", gradient, values, _checked(values), _Differences(eps, rtol, atol, directions))
    return True


@dataclass(frozen=True, slots=True)
class _Differences:
    """How differences are taken and compared: the arguments of gradcheck."""

    eps: float
    rtol: float
    atol: float
    directions: int | None

    def signs(self, shape: tuple[int, ...]) -> Host | None:
        """Random directions of an input, along axis 0; None if its elements are moved one by one."""
        import numpy as np

        if self.directions is None or math.prod(shape) <= self.directions:
            return None
        return np.random.default_rng(1).choice([-1.0, 1.0], (self.directions, *shape))


def _check(where: str, fn: Fn, xs: Sequence[NDArray], checked: Sequence[int], differences: _Differences) -> None:
    fresh = [_leaf(x) if x.requires_grad else x for x in xs]  # neither their graphs nor their `.grad` are touched
    with enable_grad():
        ys = _floating(fn(*fresh))
    dys = _directions(ys)
    tracked = [(y, dy) for y, dy in zip(ys, dys, strict=True) if y.requires_grad]
    gradients: Sequence[NDArray | None] = (None,) * len(checked)
    if tracked:  # otherwise the results are constants: the differences have to be zero
        seeds = [array(dy, device=y.device) for y, dy in tracked]
        gradients = grad([y for y, _ in tracked], [fresh[i] for i in checked], seeds, allow_unused=True)
    for i, gradient in zip(checked, gradients, strict=True):
        signs, shape = differences.signs(xs[i].shape), xs[i].shape
        numeric = _numeric(fn, xs, i, dys, _elements(shape) if signs is None else signs, differences.eps)
        exact = abs(numeric * 0) if gradient is None else _along(gradient.detach().numpy(), signs)
        _compare(where, i, shape if signs is None else None, exact, numeric, differences)


def _elements(shape: tuple[int, ...]) -> Iterator[Host]:
    """The directions of single elements."""
    import numpy as np

    places: Any = np.ndindex(shape)
    for place in places:
        out = np.zeros(shape)
        out[place] = 1.0
        yield out


def _along(gradient: Host, signs: Host | None) -> Host:
    """The derivatives along directions, of each element without them."""
    import numpy as np

    return gradient.ravel() if signs is None else np.array([(each * gradient).sum() for each in signs])


def _checked(xs: Sequence[NDArray]) -> list[int]:
    checked = [i for i, x in enumerate(xs) if x.requires_grad]
    if not checked:
        raise GradientError("gradcheck", "no input requires a gradient", "at least one", "set x.requires_grad = True")
    for i in checked:
        if xs[i].dtype != "float64":
            raise GradientError(
                "gradcheck",
                f"input {i} has dtype {xs[i].dtype}",
                "float64, or differences drown in rounding",
                'cast it: x.cast("float64")',
            )
    return checked


def _leaf(x: NDArray) -> NDArray:
    out = x.detach()
    out.requires_grad = True
    return out


def _floating(result: Any) -> list[NDArray]:
    return [r for r in as_tuple(result) if isinstance(r, NDArray) and r.dtype == "float64"]


def _directions(ys: Sequence[NDArray]) -> list[Host]:
    import numpy as np

    rng = np.random.default_rng(0)
    return [rng.uniform(0.5, 1.5, y.shape) * rng.choice([-1.0, 1.0], y.shape) for y in ys]


def _numeric(fn: Fn, xs: Sequence[NDArray], index: int, dys: Sequence[Host], moves: Iterable[Host], eps: float) -> Host:
    """The vector-Jacobian product with respect to input `index` along each of the moves, by central differences."""
    import numpy as np

    base: Host = np.array(xs[index].detach().numpy())
    sides = [[_project(fn, xs, index, base + step * move, dys) for step in (eps, -eps)] for move in moves]
    return np.array([(up - down) / (2 * eps) for up, down in sides])


def _project(fn: Fn, xs: Sequence[NDArray], index: int, value: Host, dys: Sequence[Host]) -> float:
    args = [array(value, device=x.device) if i == index else x.detach() for i, x in enumerate(xs)]
    with no_grad():
        ys = _floating(fn(*args))
    return float(sum((y.detach().numpy() * dy).sum() for y, dy in zip(ys, dys, strict=True)))


def _compare(
    where: str, index: int, shape: tuple[int, ...] | None, exact: Host, numeric: Host, differences: _Differences
) -> None:
    """shape: the shape of the input if its elements were moved one by one."""
    import numpy as np

    rtol, atol = differences.rtol, differences.atol
    distance = np.abs(exact - numeric)
    bad = ~(distance <= atol + rtol * np.abs(numeric))
    if not bad.any():
        return
    worst = int(np.argmax(np.where(bad, np.nan_to_num(distance, nan=np.inf), -1)))
    place = f"along direction {worst}" if shape is None else f"at {tuple(map(int, np.unravel_index(worst, shape)))}"
    raise GradientError(
        where,
        f"gradient of input {index} {place} is {exact[worst]:.9g}, by finite differences {numeric[worst]:.9g} "
        f"({int(bad.sum())} of {bad.size} {'directions' if shape is None else 'elements'} differ)",
        f"within rtol {rtol:g}, atol {atol:g}",
        "check the gradient formula, or kinks of the function near these inputs",
    )
