"""NumPy arrays as arguments of composed functions, which take them as operators do."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from meta.eager.operands import as_arrays, has_numpy_arrays

F = TypeVar("F", bound=Callable[..., Any])


def takes_numpy(function: F) -> F:
    """`function` with NumPy arrays among its arguments, or in lists there, as arrays on the device of its tensors."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        values = (*args, *kwargs.values())
        if has_numpy_arrays(values):
            values = as_arrays(values)
            args, kwargs = values[: len(args)], dict(zip(kwargs, values[len(args) :], strict=True))
        return function(*args, **kwargs)

    return run  # type: ignore[return-value]
