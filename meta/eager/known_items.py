"""Parts of cache keys that are remembered by identity.

A key holds the bytes of attributes that are tuples of ints, because `(1,)` equals `(True,)`. Writing the bytes of four
attributes takes 0.3 us, a fifth of a small call, although most calls pass objects that were passed before: defaults,
constants, attributes of layers, and in gradients the attributes of the call.
"""

from __future__ import annotations

from marshal import dumps
from typing import Any

_LIMIT = 256
"""Entries per operator, after which a dictionary starts over."""


class KnownItems(dict[tuple[Any, ...], tuple[Any, ...]]):
    """Attributes -> (*the same objects, (*attributes in normal form, *their parts of the cache key)).

    The attributes of an entry equal those that are looked up; unless they are the same objects or have the same bytes,
    the entry is to be renewed. The same objects have not changed: entries hold only hashable objects, so no lists."""

    def __missing__(self, raw: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*raw, self.renew(raw))

    def renew(self, raw: tuple[Any, ...]) -> tuple[Any, ...]:
        """Put an entry in place for these objects; the last item of the entry. An int becomes a tuple.

        Raises ValueError if an attribute has no bytes, as symbolic sizes and objects of other classes."""
        normal = tuple([(value,) if type(value) is int else value for value in raw])
        key = (*normal, *[dumps(value, 2) for value in normal])
        if len(self) >= _LIMIT:
            self.clear()
        self[raw] = (*raw, key)
        return key
