"""Generators: where the keys of random operators come from."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

from meta.device import CPU, Device
from meta.errors import ArgumentError
from meta.modes import modes

if TYPE_CHECKING:
    from meta.eager.ndarray import NDArray

_SEEDS = 2**63


class Generator:
    """A stream of keys: one seed, and an offset that every draw moves on. Threads may share one.

    Raises ArgumentError for a seed that is no 64-bit int."""

    def __init__(self, seed: int = 0) -> None:
        self._lock = Lock()
        self.seed(seed)

    def seed(self, seed: int) -> Generator:
        """Start over with another seed."""
        if not isinstance(seed, int) or not -_SEEDS <= seed < _SEEDS:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError("seed", f"the seed is {seed!r}", "a 64-bit int")
        with self._lock:
            self._seed, self._offset = int(seed), 0
        return self

    @property
    def state(self) -> tuple[int, int]:
        """Seed and offset; assign them to go on from there."""
        with self._lock:
            return self._seed, self._offset

    @state.setter
    def state(self, state: tuple[int, int]) -> None:
        with self._lock:
            self._seed, self._offset = state

    def advance(self, count: int = 1) -> tuple[int, int]:
        """The state, moved on by `count` draws afterwards."""
        with self._lock:
            before = self._seed, self._offset
            self._offset += count
        return before

    def next_key(self, device: Device | str = CPU, count: int = 1) -> NDArray:
        """A key that no other draw gets: int64 of shape (2,). With `count`, also the offsets after it are taken: a
        program that draws several keys adds 0 to count - 1 to this one's."""
        import numpy as np

        from meta.eager.ndarray import array

        return array(np.array(self.advance(count), np.int64), device=device)

    def __repr__(self) -> str:
        return f"<Generator seed={self.state[0]}, offset={self.state[1]}>"


default_generator = Generator()
"""The generator behind the functions of `meta.random`."""


def seed(seed: int) -> Generator:
    """Seed the default generator; returns it. Raises ArgumentError for a seed that is no 64-bit int."""
    return default_generator.seed(seed)


def next_key(device: Device | str = CPU, generator: Generator | None = None) -> Any:
    """A fresh key, int64 of shape (2,), from `generator` or the default one; in a traced function, a symbol that
    stands for
    a fresh key of every call."""
    if modes.trace is not None and generator is None:
        return modes.trace.random_key(device)
    return (generator or default_generator).next_key(device)
