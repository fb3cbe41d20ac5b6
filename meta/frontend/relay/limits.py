"""Limits on the size and depth of untrusted programs."""

from __future__ import annotations

MAX_SOURCE = 1 << 30
"""Characters of a source. In large sources most of them are constants."""

MAX_PROGRAM = 16 << 20
"""Characters of the program in a text, without its metadata section: a network of 10,000 operators has 2 MiB."""

MAX_NESTING = 200
"""Nested brackets, function types and lets, and branches of one else-if chain. Relay's printer nests scopes only: a
chain of a million bindings has depth 1."""

MAX_DIGITS = 400
"""Characters of one number."""

MAX_DIMENSIONS = 64
"""Dimensions of a tensor; NumPy has the same limit."""

MAX_DIMENSION = 2**63 - 1

MAX_VALUE_SIZE = 100_000
"""Leaves of one type or attribute of a JSON source. A leaf counts once for each path to it: graphs with
shared parts can expand exponentially."""

MAX_EXPANSION = 100
MAX_EXPANSION_FREE = 256 << 20
"""A compressed file of parameters may expand to MAX_EXPANSION times its size plus MAX_EXPANSION_FREE bytes."""
