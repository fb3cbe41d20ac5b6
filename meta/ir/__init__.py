"""The intermediate representation: a small typed language in A-normal form, printed, read, checked and rewritten.

layout                                  tensors in the memory of others: shapes, strides and offsets
expr, type                              the nodes, places in the user's code and calls, their types
builder                                 programs, and writing IR binding by binding, which tracing and passes do
printer                                 the text of programs, and of the values in them
parser, lexer, literal_parser           programs from text: expressions, tokens, values
visitor                                 walking, other operands and blocks, substitution, renaming, inlining
equality                                equality by content
analysis                                last uses, call graph, operators; the memory that results share
verifier, verifier_rules                the rules of well-formed IR
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import submodules

if TYPE_CHECKING:
    from meta.ir import analysis as analysis
    from meta.ir import builder as builder
    from meta.ir import equality as equality
    from meta.ir import expr as expr
    from meta.ir import layout as layout
    from meta.ir import lexer as lexer
    from meta.ir import literal_parser as literal_parser
    from meta.ir import parser as parser
    from meta.ir import printer as printer
    from meta.ir import type as type  # noqa: A004
    from meta.ir import verifier as verifier
    from meta.ir import verifier_rules as verifier_rules
    from meta.ir import visitor as visitor
else:
    __getattr__, __dir__ = submodules(__name__)
