"""What batches come from. Each source gives a batch of host arrays for a list of positions, or the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

import numpy as np

from meta.eager.ndarray import ArrayLike, NDArray
from meta.errors import ArgumentError
from meta.tree import Tree, flatten

Host = np.ndarray[Any, Any]


class BatchSource(Protocol):
    """Items by position."""

    def __len__(self) -> int: ...

    def batch(self, positions: Sequence[int] | Host) -> Any:
        """A nest of arrays whose first axis is the batch. Called in worker threads."""
        ...


def source_of(data: Any) -> BatchSource | None:
    """The items of arrays or of a dataset; None for an iterable of batches. Raises ArgumentError for anything else."""
    kind: type[Any] = type(cast("object", data))
    is_list = issubclass(kind, list) and all(isinstance(x, ArrayLike) for x in data)
    if is_list or issubclass(kind, (tuple, dict)) or isinstance(data, ArrayLike):
        leaves, tree = flatten(data, ArrayLike)
        if leaves and not list(tree.statics()):
            return Arrays(leaves, tree)
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return Items(data)
    elif hasattr(data, "__iter__"):
        return None
    raise ArgumentError(
        "batches", f"the data are of class {kind.__name__}",
        "arrays, a dataset with __getitem__ and __len__, or an iterable of batches, such as a DataLoader",
    )  # fmt: skip


class Arrays:
    """A nest of arrays of any library with one item for each index of the first axis."""

    def __init__(self, leaves: Sequence[tuple[str, Any]], tree: Tree) -> None:
        self._tree = tree
        self._arrays = [host(x) for _, x in leaves]
        sizes = {
            name or "data": x.shape[0] if x.ndim else -1 for (name, _), x in zip(leaves, self._arrays, strict=True)
        }
        self._size = next(iter(sizes.values()))
        if self._size < 0 or len(set(sizes.values())) > 1:
            found = ", ".join(f"{name}: {'a scalar' if n < 0 else n}" for name, n in sizes.items())
            raise ArgumentError("batches", f"the first axes have the sizes {found}", "arrays of as many items each")

    def __len__(self) -> int:
        return self._size

    def batch(self, positions: Sequence[int] | Host) -> Any:
        return self._tree.build(iter([x[positions] for x in self._arrays]))


class Items:
    """A dataset with `__getitem__` and `__len__`, such as torch's: items are stacked."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def batch(self, positions: Sequence[int] | Host) -> Any:
        nests = [flatten(self._dataset[int(i)], _LEAVES) for i in positions]
        columns = zip(*([x for _, x in leaves] for leaves, _ in nests), strict=True)
        return nests[0][1].build(iter([_stacked(column) for column in columns]))


_LEAVES: Final = (NDArray, ArrayLike, np.generic, int, float)


def _stacked(values: Sequence[Any]) -> Host:
    if type(values[0]) is float:  # Python's numbers as `meta.array` takes them
        return np.array(values, np.float32)
    return np.stack([host(x) for x in values])


def host(x: Any) -> Host:
    """An array on the host."""
    if isinstance(x, NDArray):
        return np.asarray(x.detach().to("cpu").numpy())
    is_torch = hasattr(x, "detach") and hasattr(x, "cpu")
    return np.asarray(x.detach().cpu() if is_torch else x)
