"""The directive `public-api`: the documentation of every public name of a module.

    :::{public-api} meta.optim
    :::

The names are listed by `dir(module)`, without submodules. Options: `:only:` and `:except:`, names separated by spaces;
`:from:`, the package that defines them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("public-api", PublicApi)
    return {"parallel_read_safe": True}


class PublicApi(SphinxDirective):
    required_arguments = 1
    option_spec = dict.fromkeys(("only", "except", "from"), directives.unchanged)

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        only, left_out = (self.options.get(option, "").split() for option in ("only", "except"))
        home = self.options.get("from", "")
        lines = [
            line
            for public, value in public_names(import_module(name))
            if (not only or public in only) and public not in left_out
            if getattr(value, "__module__", "").startswith(home)
            for line in _directive(f"{name}.{public}", value)
        ]
        return self.parse_text_to_nodes("\n".join(["```{eval-rst}", *lines, "```"]))


def public_names(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Names and values that a module offers to users."""
    for name in dir(module):
        value = getattr(module, name)
        if not name.startswith("_") and not inspect.ismodule(value):
            yield name, value


def _directive(path: str, value: Any) -> list[str]:
    if inspect.isclass(value):
        return [f".. autoclass:: {path}", "   :members:", ""]
    if callable(value):
        return [f".. autofunction:: {path}", ""]
    return [f".. autodata:: {path}", ""]
