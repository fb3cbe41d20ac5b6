"""Names that PyTorch, NumPy, JAX and Keras have for what is called otherwise here, and what to write for them.

Errors about unknown attributes and arguments look them up here. The documentation lists the tables on the page "Names
of other libraries", and a test runs every row: the left side fails with a message that has the right side, which runs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meta.spellings.arguments import argument_hint as argument_hint
    from meta.spellings.arguments import call_text as call_text
    from meta.spellings.arguments import device_hint as device_hint
    from meta.spellings.arguments import keyed_call_text as keyed_call_text
    from meta.spellings.arguments import operator_path as operator_path
    from meta.spellings.arguments import refuse_unknown as refuse_unknown
    from meta.spellings.arguments import shape_first as shape_first
    from meta.spellings.attributes import missing_member as missing_member
    from meta.spellings.attributes import missing_name as missing_name
    from meta.spellings.attributes import row_hint as row_hint
else:
    _ATTRIBUTES = ("missing_member", "missing_name", "row_hint")

    def __getattr__(name: str) -> Any:
        """The tables are loaded at the first error that reads them. (`meta.lazy` itself reads them.)"""
        home = "attributes" if name in _ATTRIBUTES else "arguments"
        return getattr(import_module(f"{__name__}.{home}"), name)
