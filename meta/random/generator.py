"""Generators, which produce the keys of random operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from meta.device import CPU, Device
from meta.errors import ArgumentError, value_text
from meta.locks import new_lock
from meta.modes import modes
from meta.schema.annotations import explained

if TYPE_CHECKING:
    from meta.eager.ndarray import NDArray

_SEED_LIMIT = 2**63
_STATE = ("seed", "offset")


class Generator:
    """A stream of keys: one seed and an offset that every draw advances. Threads may share a generator.

    Raises ArgumentError for a seed that is not a 64-bit int."""

    def __init__(self, seed: int = 0) -> None:
        self._lock = new_lock("random")
        self.seed(seed)

    def seed(self, seed: int) -> Generator:
        """Restart with another seed."""
        if not isinstance(seed, int) or not -_SEED_LIMIT <= seed < _SEED_LIMIT:
            raise ArgumentError("seed", f"the seed is {value_text(seed)}", "a 64-bit int")
        with self._lock:
            self._seed, self._offset = int(seed), 0
        return self

    @property
    def state(self) -> tuple[int, int]:
        """Seed and offset; assign a saved pair to continue from it."""
        with self._lock:
            return self._seed, self._offset

    @state.setter
    def state(self, state: tuple[int, int]) -> None:
        with self._lock:
            self._seed, self._offset = state

    def state_dict(self) -> dict[str, int]:
        """Seed and offset by name, to save with a checkpoint."""
        return dict(zip(_STATE, self.state, strict=True))

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue from a saved state. Raises ArgumentError unless it has a 64-bit seed and an offset of 0 or more."""
        seed, offset = (state.get(name) for name in _STATE)
        valid = type(seed) is int and type(offset) is int and set(state) == set(_STATE)
        if not valid or not -_SEED_LIMIT <= seed < _SEED_LIMIT or not 0 <= offset < _SEED_LIMIT:  # type: ignore[operator]
            raise ArgumentError("Generator", f"the state is {dict(state)!r:.80}", "a 64-bit seed and an offset from 0")
        self.state = seed, offset  # type: ignore[assignment]

    def advance(self, count: int = 1) -> tuple[int, int]:
        """Advance the offset by `count` draws; returns the state before."""
        with self._lock:
            before = self._seed, self._offset
            self._offset += count
        return before

    def next_key(self, device: Device | str = CPU, count: int = 1) -> Any:
        """A key that no other draw gets: int64 of shape (2,). `count` reserves that many offsets. In a traced function
        the key is a symbol; every call of the program draws a fresh one."""
        if modes.trace is not None:
            return modes.trace.random_key(device, None if self is default_generator else self, count)
        return self.draw(device, count)

    def draw(self, device: Device | str = CPU, count: int = 1) -> NDArray:
        """`next_key` as an array in any case: a program that draws several keys adds 0 to count - 1 to the offset."""
        import numpy as np

        from meta.eager.ndarray import array

        return array(np.array(self.advance(count), np.int64), device=device)

    def __repr__(self) -> str:
        return f"<Generator seed={self.state[0]}, offset={self.state[1]}>"


default_generator = Generator()
"""The generator that the functions of `meta.random` use."""


@explained
def seed(seed: int) -> Generator:
    """Seed the default generator; returns it. Raises ArgumentError for a seed that is not a 64-bit int."""
    return default_generator.seed(seed)


@explained
def next_key(device: Device | str = CPU, generator: Generator | None = None) -> Any:
    """A fresh key, int64 of shape (2,), from `generator` or the default one (see Generator.next_key)."""
    if generator is None:
        return default_generator.next_key(device)
    if not isinstance(generator, Generator):
        raise ArgumentError("random", f"generator is {value_text(generator)}", "a Generator or None")
    return generator.next_key(device)
