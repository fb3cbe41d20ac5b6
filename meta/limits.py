"""Limits on the size and depth of what is read: IR text, Relay text and JSON, parameters. Programs may come from
anywhere; within these limits, reading takes time and memory in proportion to the input."""

from __future__ import annotations

MAX_SOURCE = 1 << 30
"""Characters of a source. In large sources most of them are constants."""

MAX_PROGRAM = 16 << 20
"""Characters of the program in a text, without the constants: a network of 10,000 operators has 2 MiB."""

MAX_TOKENS = 2 << 20
"""Tokens of IR text. Each takes 150 bytes while it is read; a network of 10,000 operators has 300,000."""

MAX_NESTING = 200
"""Nested brackets, function types and lets, and branches of one else-if chain. Relay's printer nests scopes only: a
chain of a million bindings has depth 1."""

MAX_DEPTH = 64
"""Nesting of blocks, types and attribute values in IR, and of nests in files. It bounds the recursion of every walk
over them."""

MAX_DIGITS = 400
"""Characters of one number."""

MAX_NAME = 4096
"""Characters of a name."""

MAX_STRING = 1 << 16
"""Characters of a string in a program; constants are limited only by the source."""

MAX_DIMENSIONS = 64
"""Dimensions of a tensor; NumPy has the same limit."""

MAX_DIMENSION = 2**63 - 1

MAX_FACTORS = 1024
"""Factors in all terms of a symbolic size: n * m + k has three."""

MAX_QUOTIENT = 4096
"""Characters of a quotient of symbolic sizes. Quotients hold quotients, so their text can double with each."""

MAX_VALUE_SIZE = 100_000
"""Leaves of one type or attribute. A leaf counts once for each path to it: types and graphs with shared parts expand
exponentially."""

MAX_TYPE_LEAVES = 1_000_000
"""Leaves of all types of a program in IR text, with those that are inferred."""

MAX_EVALUATED = 250_000
"""Expressions of a Relay or Relax program that conversion evaluates; a function counts again with each call."""

MAX_FOLDED = 1 << 24
"""Elements of an array that conversion of a model computes."""

MAX_INLINED = 100_000
"""Bindings of a function that calls are inlined into: functions that call another one twice double at each level."""

MAX_HEADER = 16 << 20
"""Bytes of the header of a safetensors file: 100,000 tensors take 10 MiB."""

MAX_EXPANSION = 100
MAX_EXPANSION_FREE = 256 << 20
"""A compressed file of parameters may expand to MAX_EXPANSION times its size plus MAX_EXPANSION_FREE bytes."""
