"""How large and how deep an untrusted program may be before a reader refuses it."""

from __future__ import annotations

MAX_SOURCE = 1 << 30
"""Characters of a source, most of which are constants where it is large."""

MAX_PROGRAM = 16 << 20
"""Characters of the program in a text, without its metadata section: a network of 10,000 operators has 2 MiB."""

MAX_NESTING = 200
"""Brackets within brackets, function types within function types, let within let, branches of one else-if chain. What
the printer of Relay nests is the scopes of a program; a chain of a million bindings has depth 1."""

MAX_DIGITS = 400
"""Characters of one number."""

MAX_DIMENSIONS = 64
"""Dimensions of a tensor; NumPy has the same limit."""

MAX_DIMENSION = 2**63 - 1

MAX_VALUE_SIZE = 100_000
"""Leaves of one type or attribute of a JSON source, counted as often as they are reached: shared parts of a node graph
can stand for exponentially large values."""

MAX_EXPANSION = 100
MAX_EXPANSION_FREE = 256 << 20
"""A compressed file of parameters may expand to that many times its size, and to that many bytes in any case."""
