"""`meta.data.batches`: order, sources of NumPy and torch, worker threads, state in the middle of an epoch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.errors import ArgumentError

X = np.arange(20, dtype=np.float32).reshape(10, 2)
Y = np.arange(10)


class Squares(torch.utils.data.Dataset[Any]):
    """Items of a tensor, a NumPy array and two numbers."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> Any:
        return {"x": torch.from_numpy(X[i]), "y": X[i] ** 2, "label": i, "weight": i / 2}


def first_items(loader: Any) -> list[list[float]]:
    return [x.numpy()[:, 0].tolist() for x, *_ in loader]


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("kind", [np.asarray, meta.array, torch.from_numpy])
def test_batches_of_arrays(kind: Any, workers: int) -> None:
    loader = meta.data.batches((kind(X), kind(Y)), 4, workers=workers)
    assert len(loader) == 3
    for _ in range(2):
        got = list(loader)
        assert [type(x) for x, _ in got] == [meta.NDArray] * 3
        np.testing.assert_array_equal(np.concatenate([x.numpy() for x, _ in got]), X)
        np.testing.assert_array_equal(np.concatenate([y.numpy() for _, y in got]), Y)
    assert loader.epoch == 2
    alone = meta.data.batches({"a": kind(X)}, 5, workers=workers)
    assert [b["a"].shape for b in alone] == [(5, 2)] * 2
    got[0][0].update(meta.zeros((4, 2)))
    assert X[1, 0] == 2, "batches are copies"


def test_shuffled_orders_differ_by_epoch_and_follow_the_key() -> None:
    def epochs(shuffle: Any) -> list[Any]:
        loader = meta.data.batches((X, Y), 3, shuffle=shuffle)
        return [np.concatenate([y.numpy() for _, y in loader]).tolist() for _ in range(2)]

    first, second = epochs(7)
    assert sorted(first) == sorted(second) == Y.tolist()
    assert first != second
    assert first != Y.tolist()
    assert epochs(7) == [first, second]
    assert epochs(8) != [first, second]
    key = meta.random.Generator(5).next_key()
    assert epochs(key) == epochs(meta.random.Generator(5)) != epochs(5 + 1)
    meta.random.seed(1)
    drawn = epochs(True)
    meta.random.seed(1)
    assert epochs(True) == drawn != epochs(True)


def test_datasets_and_loaders_of_torch() -> None:
    items = meta.data.batches(Squares(), 4, drop_last=True, workers=2)
    assert len(items) == 2
    first = next(iter(items))
    np.testing.assert_array_equal(first["y"].numpy(), X[:4] ** 2)
    assert first["label"].numpy().tolist() == [0, 1, 2, 3]
    assert first["weight"].dtype == "float32"
    theirs = torch.utils.data.DataLoader(Squares(), batch_size=4)
    loader = meta.data.batches(theirs)
    assert len(loader) == 3
    for _ in range(2):
        for ours, batch in zip(loader, theirs, strict=True):
            assert isinstance(ours["x"], meta.NDArray)
            np.testing.assert_array_equal(ours["x"].numpy(), batch["x"].numpy())
    pairs = meta.data.batches([(X[i], int(Y[i])) for i in range(10)], 5)
    assert [y.numpy().tolist() for _, y in pairs] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("source", ["arrays", "dataset", "loader"])
def test_resumes_in_the_middle_of_an_epoch(source: str, workers: int, tmp_path: Path) -> None:
    def build() -> Any:
        if source == "loader":
            return meta.data.batches(torch.utils.data.DataLoader(torch.from_numpy(X), batch_size=3), workers=workers)
        data = (X, Y) if source == "arrays" else [(X[i], int(Y[i])) for i in range(10)]
        return meta.data.batches(data, 3, shuffle=4, workers=workers)

    def rows(batch: Any) -> list[Any]:
        return (batch[0] if isinstance(batch, tuple) else batch).numpy().tolist()

    whole = build()
    expected = [[rows(b) for b in whole] for _ in range(3)]
    loader = build()
    list(loader)
    for i, _ in enumerate(loader):
        if i == 1:
            meta.save(tmp_path / "loader.safetensors", {"loader": loader})
            break
    for other in (build(), loader):
        meta.load(tmp_path / "loader.safetensors", {"loader": other})
        assert other.epoch == 1
        assert [rows(b) for b in other] == expected[1][2:]
        assert [rows(b) for b in other] == expected[2]
    with pytest.raises(ArgumentError, match=r"\[batches\] the state is {'epoch': 1}; expected ints for epoch, batch"):
        loader.load_state_dict({"epoch": 1})


def test_batches_are_made_beside_the_loop() -> None:
    """While the loop has the first batch, the thread makes the next ones; it is gone when the loop ends early."""
    made = threading.Semaphore(0)

    class Counted(Squares):
        def __getitem__(self, i: int) -> Any:
            made.release()
            return super().__getitem__(i)

    before = threading.active_count()
    for _ in meta.data.batches(Counted(), 2):
        for _ in range(4):
            assert made.acquire(timeout=10)
        break
    assert threading.active_count() == before


def test_an_error_in_a_worker_reaches_the_loop() -> None:
    def broken() -> Iterator[Any]:
        yield X
        raise ValueError("no more data")

    class Broken(Squares):
        def __getitem__(self, i: int) -> Any:
            raise KeyError(i)

    class Once:
        def __iter__(self) -> Iterator[Any]:
            return broken()

    with pytest.raises(ValueError, match="no more data"):
        list(meta.data.batches(Once()))
    with pytest.raises(KeyError):
        list(meta.data.batches(Broken(), 2))


def test_a_padded_batch_has_a_mask() -> None:
    loader = meta.data.batches((X, Y), 4, pad_last=True)
    got = list(loader)
    assert {x.shape for x, _, _ in got} == {(4, 2)}
    assert [m.numpy().tolist() for *_, m in got] == [[True] * 4, [True] * 4, [True, True, False, False]]
    assert got[-1][1].numpy().tolist() == [8, 9, 8, 9]
    x, mask = next(iter(meta.data.batches(X, 16, pad_last=True)))
    assert x.shape == (16, 2)
    assert mask.numpy().sum() == 10


def test_the_progress_bar_shows_what_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    loader = meta.data.batches((X, Y), 4, progress=True)
    for _ in loader:
        loader.report(loss=meta.array(0.25))
    shown = capsys.readouterr().err
    assert "epoch 0" in shown
    assert "3/3" in shown
    assert "loss=0.25" in shown
    loader.report(loss=1.0)  # outside of a loop nothing is shown


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: meta.data.batches((X, Y[:4]), 2), r"the first axes have the sizes 0: 10, 1: 4; expected arrays of as"),
        (lambda: meta.data.batches(np.float32(3)), r"\[batches\] the data are of class float32; expected arrays, a da"),
        (lambda: meta.data.batches(X), r"\[batches\] no batch size; expected an int, 1 or more; pass batch=32"),
        (lambda: meta.data.batches(X, 0), r"\[batches\] batch is 0; expected an int, 1 or more"),
        (lambda: meta.data.batches(iter([X]), 2), r"a list_iterator with batch= or shuffle=; .*leave the two out"),
        (
            lambda: meta.data.batches(X, 2, shuffle="yes"),
            r"shuffle is 'yes'; expected a seed, a key of meta.random, or",
        ),
        (lambda: meta.data.batches(X, 2, drop_last=True, pad_last=True), r"drop_last and pad_last; expected one of"),
        (lambda: meta.data.batches(X, 2, workers=-1), r"workers is -1; expected an int, 0 or more"),
    ],
)
def test_rejects_what_does_not_fit(make: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        make()


@pytest.mark.parametrize("way", ["kept", "padded", "open"])
def test_a_smaller_last_batch_trains_as_its_own_batch(way: str) -> None:
    """The three ways of a last batch lead to the weights of NumPy's whole and smaller batch, by one or two programs."""

    def masked(out: Any, y: Any, mask: Any) -> Any:
        weight = mask.cast("float32")
        return (meta.mse_loss(out, y, reduction="none").mean(1) * weight).sum() / weight.sum()

    meta.random.seed(0)
    model = meta.nn.Linear(2, 1)
    w, b = model.w.detach().numpy().copy(), model.b.detach().numpy().copy()
    target = (X[:, :1] - X[:, 1:] * 0.5) / 10
    dynamic = {"args.0": {0: "n"}, "args.1": {0: "n"}} if way == "open" else None
    step = meta.optim.TrainStep(model, meta.optim.SGD(model, 1e-3), masked if way == "padded" else meta.mse_loss)
    run = meta.vm.compile(step, dynamic=dynamic)
    loader = meta.data.batches((X, target), 4, pad_last=way == "padded")
    for batch in loader:
        run(*batch)
    for start in range(0, 10, 4):
        x, y = X[start : start + 4], target[start : start + 4]
        error = 2 * (x @ w.T + b - y) / len(x)
        w, b = w - 1e-3 * (error.T @ x), b - 1e-3 * error.sum(0)
    np.testing.assert_allclose(model.w.detach().numpy(), w, rtol=1e-5)
    np.testing.assert_allclose(model.b.detach().numpy(), b, rtol=1e-5)
    assert len(run._programs) == (2 if way == "kept" else 1)
