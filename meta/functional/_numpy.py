"""NumPy arrays and mixed precision in composed functions, which take arguments as operators do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from meta.eager.call import as_arrays, has_numpy_arrays
from meta.errors import MetaError
from meta.modes import modes, scopes

F = TypeVar("F", bound=Callable[..., Any])


def takes_numpy(function: F) -> F:
    """`function` with NumPy arrays among its arguments, or in lists there, as arrays on the device of its tensors.

    Under autocast, floating operands are cast by the rule `AMP` of the function's module: one rule for its functions,
    or a rule for each of those named. Arguments of a wrong kind, at which Python fails inside of the function, raise
    ArgumentError."""
    rules: Any = getattr(sys.modules[function.__module__], "AMP", {})
    rule = rules if isinstance(rules, str) else rules.get(function.__name__)

    @wraps(function)
    def run(*args: object, **kwargs: object) -> Any:
        values = (*args, *kwargs.values())
        if has_numpy_arrays(values):
            values = as_arrays(values)
            args, kwargs = values[: len(args)], dict(zip(kwargs, values[len(args) :], strict=True))
        if scopes.active and modes.autocast is not None and rule:
            values = modes.autocast.composed(rule, (*args, *kwargs.values()))
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
