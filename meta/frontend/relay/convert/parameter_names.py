"""Names of parameters as users have them, in programs whose text has others.

Relay's printer writes a letter before a name that does not start with one (`1.bias` is `%v1.bias`), and a number after
one that an earlier variable of the module has (`%x1`). JSON keeps the names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meta.errors import ArgumentError, did_you_mean
from meta.frontend.relay import ast
from meta.frontend.relay.convert.traversal import nodes


def printed(name: str) -> str:
    """A name as Relay's printer writes it, before it numbers equal ones."""
    starts_with_letter = name[:1].isascii() and name[:1].isalpha()
    return name if starts_with_letter or not name else f"v{name}"


def matched(program: ast.RelayProgram, user_names: Iterable[str], argument: str) -> dict[str, str]:
    """The parameter of main for each name that a user wrote.

    A name that main lacks may be the printed form of a parameter's name, or have that name as its printed form. Raises
    ArgumentError, about `argument`, for a name that means none or could mean several."""
    names = [param.name for param in program.functions["main"].params]
    keys = list(user_names)
    matched = {key: key for key in keys if key in names}
    others = [key for key in keys if key not in matched]
    if not others:
        return matched
    free = [name for name in names if name not in matched]
    declared = _declared(program) - set(free)
    for key in others:
        candidates = [name for name in free if _may_mean(key, name, declared)]
        alike = [other for other in keys if other != key and printed(other) == printed(key)]
        if len(candidates) != 1 or alike:
            raise _error(argument, key, alike or candidates, names)
        matched[key] = candidates[0]
        free.remove(candidates[0])
    return matched


def _may_mean(key: str, name: str, declared: set[str]) -> bool:
    """Whether the parameter `name` is `key`. declared: names of other variables, which make the printer number it."""
    text = printed(key)
    if text == name or printed(name) == key:
        return True
    return text in declared and name.startswith(text) and name[len(text) :].isdecimal()


def _declared(program: ast.RelayProgram) -> set[str]:
    """The names of all variables of a module."""
    names: set[str] = set()
    for function in program.functions.values():
        for node in nodes(function):
            if isinstance(node, ast.RelayFunction):
                names.update(param.name for param in node.params)
            elif isinstance(node, ast.Let):
                names.add(node.var.name)
    return names


def _error(argument: str, key: str, alike: Sequence[str], names: Sequence[str]) -> ArgumentError:
    if alike:
        problem = f"{argument} has '{key}', which Relay's text does not tell from {', '.join(alike)}"
        return ArgumentError("relay", problem, f"parameters of @main: {', '.join(names)}", "use its names")
    problem = f"{argument} has '{key}', which is not a parameter of @main"
    return ArgumentError("relay", problem, f"one of {', '.join(names)}", did_you_mean(key, names))
