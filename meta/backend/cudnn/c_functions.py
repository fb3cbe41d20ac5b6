"""Functions of C libraries, bound once; a failing status raises StatusError."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

_TYPES: dict[str, Any] = {
    "p": ctypes.c_void_p,
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "z": ctypes.c_size_t,
    "d": ctypes.c_double,
}


class StatusError(Exception):
    """A function of a library returned an error. Kernels turn it into a MetaError that names the operator."""

    def __init__(self, function: str, status: str, text: str = "") -> None:
        super().__init__(f"{function} failed with {status}" + (f": {text}" if text else ""))
        self.function = function
        self.status = status


class CFunctions:
    """The functions in `signatures` of a shared library, as attributes.

    signatures: name -> one letter per argument: p pointer or handle, i int, u unsigned, z size_t, d double.
    explain: status -> (name of the status, the library's message about its last error)."""

    def __init__(self, library: Any, signatures: Mapping[str, str], explain: Callable[[int], tuple[str, str]]) -> None:
        self._library = library
        self._signatures = signatures
        self._explain = explain

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name not in self._signatures:
            raise AttributeError(f"{name} has no signature here")
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise StatusError(name, "no such function in this version of the library") from None
        function.argtypes = [_TYPES[letter] for letter in self._signatures[name]]
        function.restype = ctypes.c_int

        def check(status: int, _: Any, args: tuple[Any, ...]) -> int:
            if status:
                raise StatusError(name, *self._explain(status))
            return status

        function.errcheck = check
        setattr(self, name, function)
        return function
