"""Devices: `meta.device("cuda:1")`. They are interned: equal devices are the same object."""

from __future__ import annotations

import re
from functools import cache
from typing import NoReturn

KINDS: tuple[str, ...] = ("cpu", "cuda")
_NAME = re.compile(rf"({'|'.join(KINDS)})(?::(\d{{1,9}})|\((\d{{1,9}})\))?")


class Device:
    """A device kind ("cpu", "cuda") and an index. Compare with `is`: devices are interned by `device()`. A device also
    equals its names."""

    __slots__ = ("index", "kind")

    def __init__(self, kind: str, index: int = 0) -> None:
        self.kind, self.index = kind, index

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, str) and bool(_NAME.fullmatch(other)) and _parse(other) is self)

    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        from meta.spellings.attributes import missing_member

        missing_member(self, "x.device", name)

    def __str__(self) -> str:
        return self.kind if self.index == 0 else f"{self.kind}({self.index})"

    def __repr__(self) -> str:
        return f'device("{self}")'

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return device, (str(self),)


@cache
def _intern(kind: str, index: int) -> Device:
    return Device(kind, index)


@cache
def _parse(name: str) -> Device:
    match = _NAME.fullmatch(name)
    if match is None:
        from meta import spellings
        from meta.errors import DeviceError, value_text  # `import meta` imports this module, and does without them

        problem, expected = f"{value_text(name)} is not a device", '"cpu", "cuda", "cuda:N" or "cuda(N)"'
        raise DeviceError("device", problem, expected, spellings.device_hint(name))
    return _intern(match[1], int(match[2] or match[3] or 0))


def device(name: str | Device) -> Device:
    """The device with the name "cpu", "cuda", "cuda:1" or "cuda(1)". Raises DeviceError for other names.

    The device need not exist on this machine until data is placed on it."""
    if isinstance(name, Device):
        return name
    if isinstance(name, int):
        from meta.errors import value_text

        return _parse(value_text(name))
    return _parse(str(name))


CPU = _intern("cpu", 0)
