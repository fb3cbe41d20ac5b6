"""The intermediate representation: a small typed language in A-normal form, printed, read, checked and rewritten.

expr, type, module, span         the nodes, their types, programs, places in the user's code
builder                          writing IR binding by binding, which tracing and passes do
printer, parser                  text and back; lexer, literal, literal_parser and lookup are parts of them
visitor                          walking, `rewrite` by tables of rules, substitution, renaming, inlining
compare                          equality, digests and keys by content
analysis                         last uses, call graph, operator counts
verifier                         the rules of well-formed IR; verifier_rules are the functions behind them
"""

from __future__ import annotations

from types import ModuleType

from meta.lazy import submodule


def __getattr__(name: str) -> ModuleType:
    return submodule(__name__, name)
