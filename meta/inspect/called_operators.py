"""Which operators a function calls: gradient functions, and converters of a frontend."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast

from meta.inspect.sources import unwrapped
from meta.op.registry import Op, all_ops

_FOLLOWED = ("meta.op.grad", "meta._generated.gradients", "meta.frontend.relay.ops", "meta.functional")
"""Modules of the package whose functions are followed; of its other functions only what they enclose is. Functions from
elsewhere are also followed, except library functions."""


def operators_called(function: Callable[..., Any], *, methods: bool = False) -> tuple[str, ...]:
    """The names X of all calls `meta.X` in a function and in the functions of its package that it calls, sorted.

    Read from the compiled code; nothing runs. Names of missing operators are included; names of functions and modules
    of the package are not. methods: includes operators that are called as methods of arrays, `x.sum()`."""
    names: set[str] = set()
    seen: set[int] = set()
    stack: list[Any] = [function]
    while stack:
        current = unwrapped(stack.pop())
        if id(current) in seen:
            continue
        seen.add(id(current))
        if not isinstance(current, FunctionType):
            continue
        if str(current.__module__).startswith("meta._generated.operators."):
            names.add(current.__name__)
            continue
        stack += [cell.cell_contents for cell in current.__closure__ or () if _has_contents(cell)]
        if not _is_followed(current):
            continue
        for value, attribute in _references(current.__code__, current.__globals__):
            if isinstance(value, ModuleType) and value.__name__ == "meta":
                names |= _public(attribute)
            elif isinstance(value, ModuleType):
                stack.append(getattr(value, attribute, None))
            elif value is None:
                names |= {attribute} if methods and _is_method(attribute) else set()
            else:
                stack += _functions(value)
    return tuple(sorted(names))


def _has_contents(cell: Any) -> bool:
    try:
        return callable(cell.cell_contents)
    except ValueError:  # a cell that its function has not filled yet
        return False


def _is_followed(function: FunctionType) -> bool:
    module = function.__module__ or ""
    if not module.startswith("meta."):
        return module.partition(".")[0] not in ("numpy", "torch", "tvm", "builtins")
    return module.startswith(_FOLLOWED)


def _references(code: CodeType, scope: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
    """(module, attribute) for `module.attribute`, (value, "") for another global, (None, name) for another attribute,
    in the function and in those defined inside of it."""
    module: ModuleType | None = None
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            yield module, str(name)
        elif instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") and not isinstance(scope.get(name), ModuleType):
            yield scope.get(name, ()), ""
        elif instruction.opname in ("CACHE", "PUSH_NULL"):
            continue
        loaded = scope.get(name) if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") else None
        module = loaded if isinstance(loaded, ModuleType) else None
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _references(constant, scope)


def _functions(value: object) -> list[Any]:
    """The functions in a global value: itself, or the values of a table."""
    if isinstance(value, Mapping):
        return [v for v in cast("Mapping[Any, Any]", value).values() if isinstance(v, FunctionType)]
    return [value] if callable(value) else []


def _public(name: str) -> set[str]:
    """The operator that `meta.<name>` calls: none for another function or module of the package."""
    import meta

    if name in _by_name():
        return {name}
    return set() if hasattr(meta, name) else {name}


def _is_method(name: str) -> bool:
    op = _by_name().get(name)
    return op is not None and op.method


def _by_name() -> Mapping[str, Op]:
    return {op.name: op for op in all_ops()}
