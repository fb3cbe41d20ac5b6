"""NumPy arrays as arguments of composed functions, which take them as operators do."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from meta.eager.call import as_arrays, has_numpy_arrays
from meta.errors import MetaError

F = TypeVar("F", bound=Callable[..., Any])


def takes_numpy(function: F) -> F:
    """`function` with NumPy arrays among its arguments, or in lists there, as arrays on the device of its tensors.

    Arguments of a wrong kind, at which Python fails inside of it, raise ArgumentError."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        values = (*args, *kwargs.values())
        if has_numpy_arrays(values):
            values = as_arrays(values)
            args, kwargs = values[: len(args)], dict(zip(kwargs, values[len(args) :], strict=True))
        try:
            return function(*args, **kwargs)
        except MetaError:
            raise
        except (AttributeError, TypeError, ValueError, IndexError, KeyError, ZeroDivisionError) as error:
            from meta.functional._wrong_arguments import argument_error

            explained = argument_error(function, args, kwargs, error)
            if explained is None:
                raise
            raise explained from error

    return run  # type: ignore[return-value]
