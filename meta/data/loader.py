"""Batches of arrays and datasets, made beside the training step."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Final, cast

import numpy as np

from meta.backend.cuda.streams import current_stream, use_stream
from meta.data.sources import BatchSource, Host, host, source_of
from meta.device import CPU, Device
from meta.device import device as parse_device
from meta.eager.ndarray import ArrayLike, with_arrays
from meta.errors import ArgumentError, value_text
from meta.optim.checks import whole
from meta.random.generator import Generator as RandomGenerator
from meta.random.generator import default_generator
from meta.schema.annotations import CheckedArguments, checked
from meta.tree import flatten

_AHEAD: Final = 2
"""Batches that each worker thread is ahead of the loop."""
_REPORT_SECONDS: Final = 0.5
"""How often the progress bar reads a loss, which waits for the device."""


class Batches(CheckedArguments):
    """Iterates over the batches of an epoch; see `batches`."""

    def __init__(
        self, data: Any, batch: int | None = None, *, shuffle: Any = None, drop_last: bool = False,
        pad_last: bool = False, workers: int = 1, device: Device | str = CPU, progress: bool = False,
    ) -> None:  # fmt: skip
        self._data = data
        self._source = source_of(data)
        if self._source is None and (batch is not None or shuffle is not None):
            problem = f"a {type(data).__name__} with batch= or shuffle="
            raise ArgumentError("batches", problem, "an iterable that makes batches itself", "leave the two out")
        if self._source is not None and batch is None:
            raise ArgumentError("batches", "no batch size", "an int, 1 or more", "pass batch=32")
        if drop_last and pad_last:
            raise ArgumentError("batches", "drop_last and pad_last", "one of the two")
        if isinstance(workers, bool) or workers < 0:
            raise ArgumentError("batches", f"workers is {workers!r}", "an int, 0 or more")
        self.batch = None if batch is None else whole("batches", "batch", batch)
        self.drop_last, self.pad_last, self.workers, self.progress = drop_last, pad_last, workers, progress
        self.device = parse_device(device)
        self._key = _key(shuffle)
        self._epoch = self._position = self._start = 0
        self._bar: Any = None
        self._reported_at = 0.0

    @property
    def epoch(self) -> int:
        """The number of the epoch, from 0: of the loop that runs, or of the next one."""
        return self._epoch

    def __len__(self) -> int:
        """Batches of an epoch."""
        if self._source is None or self.batch is None:
            return len(self._data)
        count = len(self._source)
        return count // self.batch if self.drop_last else -(-count // self.batch)

    def __iter__(self) -> Iterator[Any]:
        """The batches of the epoch from the first one or, after `load_state_dict`, from where the saved loop was."""
        self._position, self._start = self._start, 0
        self._bar = self._progress_bar() if self.progress else None
        try:
            for batch in self._made(self._jobs()):
                self._position += 1
                yield batch
                if self._bar is not None:
                    self._bar.update()
            self._epoch, self._position = self._epoch + 1, 0
        finally:
            if self._bar is not None:
                self._bar.close()
                self._bar = None

    def report(self, **values: Any) -> None:
        """Show values, such as `loss=loss`, in the progress bar. Arrays are read twice a second, so that the loop does
        not wait for the device."""
        now = time.monotonic()
        if self._bar is not None and now - self._reported_at >= _REPORT_SECONDS:
            self._reported_at = now
            texts = {name: f"{host(x).item():.4g}" for name, x in values.items()}
            self._bar.set_postfix(texts, refresh=False)

    # --- state -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, int]:
        """The epoch, the number of batches that the loop got, and the key of the order. `meta.save` saves it."""
        key = dict(zip(("seed", "offset"), self._key or (), strict=False))
        return {"epoch": self._epoch, "batch": self._position, **key}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Start the next loop after the batch at which the state was saved. Raises ArgumentError for another state."""
        own = self.state_dict()
        if set(state) != set(own) or any(type(value) is not int for value in state.values()):
            raise ArgumentError("batches", f"the state is {dict(state)!r:.80}", f"ints for {', '.join(own)}")
        self._epoch, self._start = state["epoch"], state["batch"]
        self._position = self._start
        if self._key is not None:
            self._key = state["seed"], state["offset"]

    # --- making batches ----------------------------------------------------------------------------------------------

    def _jobs(self) -> Iterator[Callable[[], Any]]:
        """Functions that make one batch each, in order."""
        if self._source is None or self.batch is None:
            batches = iter(self._data)
            yield from (partial(_skipped, batches, self._position if first else 0) for first in _true_then_false())
        else:
            order = self._order(self._source)
            for i in range(self._position, len(self)):
                yield partial(self._batch, self._source, order[i * self.batch : (i + 1) * self.batch])

    def _order(self, source: BatchSource) -> Host:
        positions = np.arange(len(source))
        if self._key is None:
            return positions
        seeds = [number % 2**64 for number in (*self._key, self._epoch)]
        return np.random.default_rng(seeds).permutation(positions)

    def _batch(self, source: BatchSource, positions: Host) -> Any:
        if not self.pad_last:
            return source.batch(positions)
        assert self.batch is not None
        mask = np.arange(self.batch) < len(positions)
        nest = source.batch(np.resize(positions, self.batch))  # padded with items of this batch
        return (*nest, mask) if isinstance(nest, tuple) else (nest, mask)

    def _made(self, jobs: Iterator[Callable[[], Any]]) -> Generator[Any, None, None]:
        """The batches on the device. Jobs of a source run in all workers, jobs of an iterable in one."""
        if self.workers == 0:
            yield from _until_end(self._placed(job, nullcontext) for job in jobs)
            return
        stream = partial(nullcontext)
        if self.device.kind == "cuda":
            stream = partial(use_stream, current_stream(self.device), self.device)
        workers = 1 if self._source is None else self.workers
        pool = ThreadPoolExecutor(workers, "meta.data")
        waiting: deque[Future[Any]] = deque()
        try:
            for job in jobs:
                waiting.append(pool.submit(self._placed, job, stream))
                if len(waiting) > _AHEAD * workers:
                    batch = waiting.popleft().result()
                    if batch is _END:
                        return
                    yield batch
            yield from _until_end(future.result() for future in waiting)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _placed(self, job: Callable[[], Any], stream: Callable[[], AbstractContextManager[Any]]) -> Any:
        """A batch as meta arrays on the device, copied in the consumer's stream."""
        with stream():
            return with_arrays(_as_arrays(job()), self.device)

    def _progress_bar(self) -> Any:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            raise ArgumentError(
                "batches", "progress=True without tqdm", "the package tqdm", "pip install tqdm"
            ) from None
        total = len(self) if self._source is not None or hasattr(self._data, "__len__") else None
        return tqdm(total=total, initial=self._position, desc=f"epoch {self._epoch}", unit="step")


_END: Final = object()


def _skipped(batches: Iterator[Any], count: int) -> Any:
    """The next batch of an iterable after `count` others, _END behind the last one."""
    for _ in range(count):
        next(batches, None)
    return next(batches, _END)


def _true_then_false() -> Iterator[bool]:
    yield True
    while True:
        yield False


def _until_end(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        if batch is _END:
            return
        yield batch


def _as_arrays(batch: Any) -> Any:
    """A batch of an iterable with arrays in place of tensors that are part of a graph."""
    leaves, tree = flatten(batch, ArrayLike)
    return tree.build(iter([x.detach() if getattr(x, "requires_grad", False) else x for _, x in leaves]))


def _key(shuffle: Any) -> tuple[int, int] | None:
    """Seed and offset of the order: of a seed, a key, a Generator, or for True the default generator."""
    if shuffle is None or shuffle is False:
        return None
    if shuffle is True:
        return default_generator.advance()
    if isinstance(shuffle, RandomGenerator):
        return shuffle.advance()
    if isinstance(shuffle, (int, np.integer)):
        return int(cast("int", shuffle)), 0
    if isinstance(shuffle, ArrayLike):
        values = host(shuffle)
        if values.shape == (2,) and values.dtype == np.int64:
            return int(values[0]), int(values[1])
    raise ArgumentError("batches", f"shuffle is {value_text(shuffle)}", "a seed, a key of meta.random, or True")


@checked
def batches(
    data: Any, batch: int | None = None, *, shuffle: Any = None, drop_last: bool = False, pad_last: bool = False,
    workers: int = 1, device: Device | str = CPU, progress: bool = False,
) -> Batches:  # fmt: skip
    """Batches of arrays or of a dataset as meta arrays, made in threads beside the training step.

        loader = meta.data.batches((images, labels), 64, shuffle=0, drop_last=True, device="cuda", progress=True)
        for epoch in range(10):
            for x, y in loader:
                loader.report(loss=step(x, y))

    data: arrays of any library with items along the first axis, also in tuples and dicts; a dataset with `__getitem__`
        and `__len__`, such as torch's, whose items are stacked; or an iterable of batches, such as torch's DataLoader.
    batch: items of a batch. Not for iterables of batches.
    shuffle: another order in each epoch, from a seed, a key or a Generator of `meta.random`, or for True its default
        one.
    drop_last: leave out a last batch that is smaller.  pad_last: fill it up with items that it has already, and append
        to every batch a mask that is False for them.
    workers: threads that make batches, each up to two ahead; 0 for none. Iterables are read by one.
    device: where the arrays are.
    progress: show a bar with steps a second and what `report` got; needs tqdm.
    Each loop over it is an epoch. `state_dict` and `load_state_dict`, and so `meta.save` and `meta.load`, continue in
    the middle of an epoch; an iterable is read again up to there, and has to come in the same order.
    Raises ArgumentError for arguments out of range and arrays with different numbers of items."""
    return Batches(data, batch, shuffle=shuffle, drop_last=drop_last, pad_last=pad_last, workers=workers,
                   device=device, progress=progress)  # fmt: skip
