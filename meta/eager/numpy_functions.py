"""NumPy's functions on arrays and symbols other than the universal ones: `np.sum(x)` runs the operator `sum`.

A row of FUNCTIONS has the target, an operator or a function of this file, and NumPy's parameters in their order: `a:x`
is passed as `x`, `-out` is refused unless it has NumPy's default, and `ddof:correction=0` is always passed. `x` and the
result are cast to `dtype:~any`; `~float` takes floating dtypes only. Keywords that a row lacks are refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import meta
from meta import dtype as dtypes
from meta._generated.methods import Tensor
from meta.eager.ufuncs import tensor_of
from meta.errors import ArgumentError, NotSupportedError, line_beyond
from meta.records import record
from meta.schema._dsl import TensorLike
from meta.spellings import call_text, row_hint
from meta.spellings.arguments import ARGUMENTS
from meta.tree import is_dict, is_sequence

Target = str | Callable[..., Any]


def _cumsum(x: Tensor, axis: int | None = None) -> Any:
    return meta.cumsum(_flat(x), 0) if axis is None else meta.cumsum(x, axis)


def _cumprod(x: Tensor, axis: int | None = None) -> Any:
    return meta.cumprod(_flat(x), 0) if axis is None else meta.cumprod(x, axis)


def _flat(x: Tensor) -> Any:
    return meta.reshape(x, (-1,))


def _roll(x: Tensor, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Any:
    return meta.roll(x, shift, axis) if axis is not None else meta.reshape(meta.roll(_flat(x), shift, 0), x.shape)


def _sort(x: Tensor, axis: int | None = -1) -> Any:
    return meta.sort(x, axis) if axis is not None else meta.sort(_flat(x), 0)


def _argsort(x: Tensor, axis: int | None = -1) -> Any:
    return meta.argsort(x, axis) if axis is not None else meta.argsort(_flat(x), 0)


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if (x is None) != (y is None):
        raise ArgumentError("numpy.where", "one of x and y is missing", "both or none of them", "pass both")
    if x is None:
        return _nonzero(condition)
    condition = tensor_of(condition)
    return meta.where(condition if condition.dtype == "bool" else condition != 0, x, y)


def _nonzero(x: Tensor) -> tuple[Any, ...]:
    return tuple(meta.squeeze(part, 1) for part in meta.split(meta.argwhere(x), x.ndim, 1))


def _flatnonzero(x: Tensor) -> Any:
    return _nonzero(_flat(x))[0]


def _take(x: Any, indices: object, axis: int | None = None) -> Any:
    """Indexing, which takes negative positions and raises PositionError for those outside, as numpy.take does."""
    x = tensor_of(x)
    if axis is None:
        return _flat(x)[indices]
    return x[(*(slice(None),) * (axis % x.ndim), indices)]


def _split(x: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Any]:
    return list(meta.split(x, indices_or_sections, axis))


def _outer(x1: Tensor, x2: Tensor) -> Any:
    return meta.multiply(meta.reshape(x1, (-1, 1)), meta.reshape(x2, (1, -1)))


def _dot(x1: Any, x2: Any) -> Any:
    x1, x2 = tensor_of(x1), tensor_of(x2)
    if 0 in (x1.ndim, x2.ndim):
        return meta.multiply(x1, x2)
    if x2.ndim <= 2:
        return meta.matmul(x1, x2)
    raise NotSupportedError("numpy.dot", f"operands of {x1.ndim} and {x2.ndim} dimensions", "up to two in the second",
                            "use meta.matmul, or meta.einsum")  # fmt: skip


def _vstack(xs: Sequence[Any]) -> Any:
    return meta.concatenate([meta.reshape(x, (1, -1)) if x.ndim < 2 else x for x in map(tensor_of, xs)], 0)


def _hstack(xs: Sequence[Any]) -> Any:
    flat = [meta.reshape(x, (-1,)) if x.ndim == 0 else x for x in map(tensor_of, xs)]
    return meta.concatenate(flat, 0 if flat[0].ndim == 1 else 1)


def _concatenate(xs: Sequence[Any], axis: int | None = 0) -> Any:
    return meta.concatenate(xs, axis) if axis is not None else meta.concatenate([_flat(x) for x in xs], 0)


def _searchsorted(sorted_sequence: Tensor, values: Tensor, side: str = "left") -> Any:
    return meta.searchsorted(sorted_sequence, values, right=side == "right")


def _flipud(x: Tensor) -> Any:
    return meta.flip(x, 0)


def _fliplr(x: Tensor) -> Any:
    return meta.flip(x, 1)


def _matrix_transpose(x: Tensor) -> Any:
    return x.mT


def _shape(x: Tensor) -> Any:
    return x.shape


def _ndim(x: Tensor) -> int:
    return x.ndim


def _size(x: Tensor, axis: int | None = None) -> Any:
    return int(x.size) if axis is None else x.shape[axis]


FUNCTIONS: Mapping[str, tuple[Target, str]] = {
    "all": ("all", "a:x axis -out keepdims"),
    "angle": ("angle", "z:x -deg=False"),
    "allclose": ("allclose", "a:x1 b:x2 rtol atol equal_nan"),
    "amax": ("max", "a:x axis -out keepdims"),
    "amin": ("min", "a:x axis -out keepdims"),
    "any": ("any", "a:x axis -out keepdims"),
    "argmax": ("argmax", "a:x axis -out keepdims"),
    "argmin": ("argmin", "a:x axis -out keepdims"),
    "argsort": (_argsort, "a:x axis -kind=stable -order"),
    "argwhere": ("argwhere", "a:x"),
    "around": ("round", "a:x -decimals=0 -out"),
    "array_equal": ("array_equal", "a1:x1 a2:x2 equal_nan"),
    "broadcast_to": ("broadcast_to", "array:x shape"),
    "clip": ("clip", "a:x a_min:min a_max:max -out min max"),
    "concatenate": (_concatenate, "arrays:xs axis -out"),
    "copy": ("copy", "a:x -order=K"),
    "cumprod": (_cumprod, "a:x axis dtype:~any -out"),
    "cumsum": (_cumsum, "a:x axis dtype:~any -out"),
    "dot": (_dot, "a:x1 b:x2 -out"),
    "einsum": ("einsum", "*operands"),
    "empty_like": ("zeros_like", "prototype:x dtype -order=K"),
    "expand_dims": ("expand_dims", "a:x axis"),
    "flatnonzero": (_flatnonzero, "a:x"),
    "flip": ("flip", "m:x axis"),
    "fliplr": (_fliplr, "m:x"),
    "flipud": (_flipud, "m:x"),
    "full_like": ("full_like", "a:x fill_value dtype -order=K"),
    "hstack": (_hstack, "tup:xs"),
    "isclose": ("isclose", "a:x1 b:x2 rtol atol equal_nan"),
    "matrix_transpose": (_matrix_transpose, "x"),
    "max": ("max", "a:x axis -out keepdims"),
    "imag": ("imag", "val:x"),
    "isreal": ("isreal", "x"),
    "mean": ("mean", "a:x axis dtype:~float -out keepdims"),
    "min": ("min", "a:x axis -out keepdims"),
    "moveaxis": ("moveaxis", "a:x source destination"),
    "ndim": (_ndim, "a:x"),
    "nonzero": (_nonzero, "a:x"),
    "ones_like": ("ones_like", "a:x dtype -order=K"),
    "outer": (_outer, "a:x1 b:x2 -out"),
    "real": ("real", "val:x"),
    "prod": ("prod", "a:x axis dtype:~any -out keepdims"),
    "ravel": (_flat, "a:x -order=C"),
    "repeat": ("repeat", "a:x repeats axis"),
    "reshape": ("reshape", "a:x shape -order=C"),
    "roll": (_roll, "a:x shift axis"),
    "round": ("round", "a:x -decimals=0 -out"),
    "searchsorted": (_searchsorted, "a:sorted_sequence v:values side -sorter"),
    "shape": (_shape, "a:x"),
    "size": (_size, "a:x axis"),
    "sort": (_sort, "a:x axis -kind=stable -order"),
    "split": (_split, "ary:x indices_or_sections axis"),
    "squeeze": ("squeeze", "a:x axis"),
    "stack": ("stack", "arrays:xs axis -out"),
    "std": ("std", "a:x axis dtype:~float -out ddof:correction=0 keepdims correction"),
    "sum": ("sum", "a:x axis dtype:~any -out keepdims"),
    "swapaxes": ("swap_axis", "a:x axis1 axis2"),
    "take": (_take, "a:x indices axis -out -mode=raise"),
    "tile": ("tile", "A:x reps"),
    "transpose": ("transpose", "a:x axes"),
    "tril": ("tril", "m:x k"),
    "triu": ("triu", "m:x k"),
    "var": ("var", "a:x axis dtype:~float -out ddof:correction=0 keepdims correction"),
    "vstack": (_vstack, "tup:xs"),
    "where": (_where, "condition x y"),
    "zeros_like": ("zeros_like", "a:x dtype -order=K"),
}
"""NumPy's functions by name, "linalg." and the like included, the functions that compute them, and their parameters."""

CONVERSIONS = frozenset({
    "array2string", "array_repr", "array_str", "can_cast", "common_type", "copyto", "iscomplexobj", "isrealobj",
    "may_share_memory", "min_scalar_type", "result_type", "save", "savetxt", "savez", "savez_compressed",
    "shares_memory",
})  # fmt: skip
"""Functions on `np.asarray(x)`: they print, save, copy or describe values, and have no gradient by nature."""


def array_function(
    self: Any, function: Any, types: Sequence[type], args: Sequence[Any], options: dict[str, Any]
) -> Any:
    """`function(*args, **options)` by its row of FUNCTIONS, or on NumPy arrays if it is one of CONVERSIONS.

    Returns NotImplemented among operands of other libraries. Raises NotSupportedError for functions without an operator
    and for arguments that it lacks."""
    import numpy as np

    del self
    if not all(issubclass(t, (TensorLike, np.ndarray)) for t in types):
        return NotImplemented
    name = f"{function.__module__}.{function.__name__}"
    key = name.removeprefix("numpy.")
    if key in CONVERSIONS:
        return function(*_hosted(args), **_hosted(options))
    row = FUNCTIONS.get(key)
    if row is None:
        is_linalg = name.startswith("numpy.linalg.") and hasattr(meta.linalg, function.__name__)
        own = f"write meta.linalg.{function.__name__}(x, ...)" if is_linalg else ""
        remedy = own or f"call it on values, without gradients: {_on_values(function)}"
        raise NotSupportedError(name, "no operator of meta computes it", "", remedy)
    target = getattr(meta, row[0]) if isinstance(row[0], str) else row[0]
    if row[1].startswith("*"):
        for option in options:
            raise _refused(name, option, function)
        return target(*args)
    arguments = _arguments(name, row[1], function, args, options)
    dtype = arguments.pop("~any", None) or arguments.pop("~float", None)
    if dtype is None:
        return target(**arguments)
    return target(**{**arguments, "x": meta.cast(tensor_of(arguments["x"]), dtype)}).cast(dtype)


def torch_function(
    cls: type[Any], function: Any, types: Sequence[type], args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> NoReturn:  # fmt: skip
    """Raises ArgumentError for a function of torch on arrays, with the call of meta's function of that name."""
    del cls, types
    name = function.__name__
    remedy = row_hint("meta", name) or "write torch.from_dlpack(x) for an array x"
    if hasattr(meta, name):
        known = inspect.signature(getattr(meta, name)).parameters
        given = [(key, value) for key, value in (kwargs or {}).items() if value is not None]
        named = {ours: value for key, value in given for ours in (key, *ARGUMENTS.get(key, ())) if ours in known}
        remedy = call_text(f"meta.{name}", ["x", "y", "z", *["..."] * len(args)], args, named)
    raise ArgumentError(f"torch.{name}", "an array of meta", "torch's tensors", remedy, location=line_beyond("torch"))


@record
class _Parameter:
    """A parameter of a function of NumPy.

    renamed: the parameter of the target, "" if it has none.  default: as text, or None."""

    name: str
    renamed: str
    default: str | None


def _parsed(parameter: str) -> _Parameter:
    names, _, default = parameter.partition("=")
    name, _, renamed = names.partition(":")
    if name.startswith("-"):
        return _Parameter(name[1:], "", default or None)
    return _Parameter(name, renamed or name, default or None)


def _arguments(name: str, row: str, function: object, args: Sequence[Any], options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the target."""
    import numpy as np

    parameters = [_parsed(text) for text in row.split()]
    out: dict[str, Any] = {p.renamed: int(p.default) for p in parameters if p.renamed and p.default}
    by_name = {p.name: p for p in parameters}
    for key, value in (*zip(by_name, args, strict=False), *options.items()):
        if value is np._NoValue:
            continue
        parameter = by_name.get(key)
        if parameter is not None and parameter.renamed == "~float" and value is not None and not _is_float(value):
            raise NotSupportedError(name, f"dtype is {value!r}", "a floating dtype", "cast the result")
        if parameter is not None and parameter.renamed:
            out[parameter.renamed] = value
        elif value is not None and (parameter is None or str(value) != parameter.default):
            raise _refused(name, key, function)
    return out


def _is_float(dtype: object) -> bool:
    return dtypes.is_float(dtypes.canonical(dtype))


def _refused(name: str, parameter: str, function: object) -> NotSupportedError:
    return NotSupportedError(
        name,
        f"argument {parameter}= on arrays of meta",
        "the other arguments",
        f"call it on values: {_on_values(function)}",
    )


def _on_values(function: Any) -> str:
    return f"{function.__module__.replace('numpy', 'np', 1)}.{function.__name__}(x.numpy(), ...)"


def _hosted(value: Any) -> Any:
    """`value` with NumPy arrays in place of arrays, also in lists and dictionaries."""
    if isinstance(value, TensorLike):
        return value.__array__()  # type: ignore[attr-defined]
    if is_sequence(value):
        return [_hosted(item) for item in value]
    if is_dict(value):
        return {key: _hosted(item) for key, item in value.items()}
    return value
