"""nvidia-cudnn-frontend (module `cudnn`): graphs of operations and their execution plans.

Only this module uses it. The caller numbers the tensors of a graph; a plan runs on a map from number to address.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import islice
from math import isfinite
from threading import Lock
from typing import Any
from weakref import WeakSet

from meta.backend.cuda import streams as timing
from meta.backend.cudnn import loader
from meta.backend.cudnn.c_functions import StatusError
from meta.backend.cudnn.descriptors import channels_last_strides, row_major_strides
from meta.backend.cudnn.handle import Handle, Workspace

MAX_WORKSPACE = 4 << 30
"""Limit of a plan's scratch memory, in bytes."""
_NAMES = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "HALF", "bfloat16": "BFLOAT16"}
"""The frontend's name of each dtype."""


def missing() -> str | None:
    """Why the frontend is unavailable, or None."""
    return None if find_spec("cudnn") else "nvidia-cudnn-frontend is not installed"


@cache
def module() -> Any:
    """The module `cudnn`, imported after the C library so that it uses the same one."""
    loader.functions()
    frontend = importlib.import_module("cudnn")
    atexit.register(_close_graphs)  # registered after the import, so that it runs before the frontend's own handler
    return frontend


def _close_graphs() -> None:
    """Release the graphs of all kernels when Python ends: the frontend prints pages about the remaining ones."""
    for graph in list(_graphs):
        graph.close()
    gc.collect()


def data_type(dtype: str) -> Any:
    return getattr(module().data_type, _NAMES[dtype])


def _error_classes() -> tuple[type[Exception], ...]:
    """Classes of the frontend's errors."""
    return (module().cudnnGraphNotSupportedError, RuntimeError, ValueError, NotImplementedError)


def _handle(handle: Handle) -> Any:
    if handle.frontend is None:
        handle.frontend = module().Handle(handle.pointer, handle.device.index, handle.stream)
    return handle.frontend


class OperationGraph:
    """A graph of operations, and its plans once built. Methods raise StatusError with the frontend's message.

    description: names the graph in errors.  compute: dtype of sums."""

    def __init__(self, description: str, handle: Handle, dtype: str, compute: str) -> None:
        self.description = description
        self.dtype = dtype
        self.handle = handle
        self._lock = Lock()
        self._selected = 0
        self._built: int | None = None
        self._restored = False
        self._pointers: Any = None
        self._order: list[int] = []
        self._launch: Any = None
        self._plan = self._pointers_address = 0
        self.graph: Any = module().pygraph(
            io_data_type=data_type(dtype),
            intermediate_data_type=data_type(compute),
            compute_data_type=data_type(compute),
            handle=_handle(handle),
        )
        _graphs.add(self)

    def close(self) -> None:
        """Release the graph; it cannot run afterwards."""
        self.graph = self._launch = self._pointers = None

    def input(
        self, number: int, shape: Sequence[int], dtype: str = "", *, channels_last: bool = False,
        strides: Sequence[int] | None = None,
    ) -> Any:  # fmt: skip
        """Declare an input tensor with strides, row-major by default; with `channels_last`, its second axis has stride
        1."""
        if strides is None:
            strides = channels_last_strides(shape) if channels_last else row_major_strides(shape)
        return self.graph.tensor(
            dim=list(shape), stride=list(strides), data_type=data_type(dtype or self.dtype), uid=number
        )

    def scalar(self, number: int) -> Any:
        """Declare a float32 input in host memory, as a tensor of rank 4 and size 1."""
        ones = [1] * 4
        return self.graph.tensor(
            dim=ones, stride=ones, data_type=data_type("float32"), is_pass_by_value=True, uid=number
        )

    def output(
        self, tensor: Any, number: int, shape: Sequence[int], dtype: str = "", *, channels_last: bool = False,
        strides: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        """Declare a tensor of the graph an output, with the strides of `input`."""
        tensor.set_output(True).set_uid(number).set_data_type(data_type(dtype or self.dtype))
        if strides is None:
            strides = channels_last_strides(shape) if channels_last else row_major_strides(shape)
        tensor.set_dim(list(shape)).set_stride(list(strides))

    def build_plans(self, avoid: Sequence[str] = ()) -> range:
        """Build the first plan, in the order of cuDNN's heuristics, that builds; returns a range: the index of that
        plan, then the indices of the plans behind it, which `select` and `fastest` build.

        avoid: names of numerical notes that plans must not have. Raises StatusError if no plan builds."""
        try:
            return self._build_plans(avoid)
        except _error_classes() as error:
            raise StatusError(self.description, "no plan", _first_line(error)) from None

    def _build_plans(self, avoid: Sequence[str]) -> range:
        cudnn, graph = module(), self.graph
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        if avoid:
            graph.deselect_numeric_notes([getattr(cudnn.numerical_note, name) for name in avoid])
        graph.deselect_workspace_greater_than(MAX_WORKSPACE)
        graph.check_support()
        refusal: Exception = RuntimeError("cuDNN has no engine for the graph")
        count = int(graph.get_execution_plan_count())
        for index in range(count):
            try:
                self._build_plan(index)
                return range(index, count)
            except _error_classes() as error:
                refusal = error
        raise refusal

    def _build_plan(self, index: int) -> int:
        """Build the plan that `execute` launches from now on; returns the bytes of its scratch memory. The frontend
        compiles the kernels of some engines each time. Raises ValueError for a plan that needs too much memory."""
        if index != self._built:
            self._built = None
            self.graph.build_plan_at_index(index)
            self._built = index
        graph = self.graph
        size = int(graph.get_workspace_size() if self._restored else graph.get_workspace_size_plan_at_index(index))
        if size > MAX_WORKSPACE:
            raise ValueError(f"the plan needs more than {MAX_WORKSPACE} bytes of scratch memory")
        return size

    def compiled_plan(self) -> bytes | None:
        """The plan built last, with its kernels, for `restore`; None for one that cuDNN does not write."""
        try:
            return bytes(self.graph.serialize())
        except (*_error_classes(), AttributeError, TypeError):
            return None

    def restore(self, data: bytes) -> int:
        """Load a plan that another process compiled, in place of the graph's own; returns its index. Raises
        StatusError, and changes nothing, for one that does not load."""
        try:
            handle = _handle(self.handle)
            graph = module().pygraph(handle=handle)
            graph.deserialize(handle, data)
            graph.get_workspace_size()
        except (*_error_classes(), AttributeError, TypeError) as error:
            raise StatusError(self.description, "the compiled plan does not load", _first_line(error)) from None
        self.graph, self._built, self._restored = graph, 0, True
        return 0

    def select(self, index: int) -> Workspace:
        """Have `run` launch this plan; returns its scratch memory."""
        try:
            size = self._build_plan(index)
            self._selected, self._pointers = index, None
        except _error_classes() as error:
            raise StatusError(self.description, "plan does not build", _first_line(error)) from None
        return Workspace(self.handle.device, size)

    def run(self, handle: Handle, addresses: Mapping[int, int], workspace: int) -> None:
        """Launch the selected plan."""
        try:
            with self._lock:  # some engines keep state during a launch, and calls share the array `_pointers`
                if self._pointers is None:
                    self.graph.execute(dict(addresses), workspace, _handle(handle))
                    self._bind_launch(addresses)
                else:
                    for i, number in enumerate(self._order):
                        self._pointers[i] = addresses[number]
                    self._launch(self._pointers_address, len(self._order), workspace, handle.pointer, self._plan)
        except _error_classes() as error:
            raise StatusError(self.description, "execution failed", _first_line(error)) from None

    def _bind_launch(self, addresses: Mapping[int, int]) -> None:
        """Have later runs call the frontend's inner launch function: the rest of `execute` inspects the tensors, which
        takes 30 us per call. Versions of the frontend without that function keep `execute`."""
        lowered: Any = getattr(self.graph, "_lowered_graph", None)
        plans: Any = getattr(self.graph, "plans", ())
        launch: Any = getattr(lowered, "_execute_with_raw_ptrs", None)
        order: Any = getattr(lowered, "_get_variant_pack_uids_sorted", tuple)()
        index: Any = getattr(plans[self._selected], "cpp_index", None) if self._selected < len(plans) else None
        if self._restored:
            index = -1  # the only plan
        if launch is None or index is None or list(order) != sorted(addresses):
            return
        self._launch, self._order, self._plan = launch, list(order), index
        self._pointers = (ctypes.c_void_p * len(order))()
        self._pointers_address = ctypes.addressof(self._pointers)

    def fastest(self, handle: Handle, plans: Sequence[int], limit: int, addresses: Mapping[int, int]) -> int:
        """The fastest of the first `limit` plans that run, measured on these tensors; it overwrites the outputs.

        Each plan runs a few times, then the best few run longer. Among plans of similar throughput the one with the
        lowest latency wins: it has fewer kernels, and an idle device waits for the launch of each."""
        measured = ((self._measure(handle, i, addresses, 3, 1), i) for i in plans)
        latencies = sorted(islice((m for m in measured if isfinite(m[0])), limit))
        if not latencies:
            return plans[0]  # which raises its error again
        least = latencies[0][0]
        finalists = [i for latency, i in latencies[:4] if latency <= 1.5 * least]  # the fastest of many runs may be any
        if len(finalists) < 2:
            return latencies[0][1]
        runs = min(10, 1 + int(1 / max(least, 1e-3)))  # about a millisecond
        times = {i: self._measure(handle, i, addresses, 5, runs) / runs for i in finalists}
        similar = [i for i, time in times.items() if time <= 1.03 * min(times.values())]  # count as equally fast
        return min(similar, key=lambda i: self._measure(handle, i, addresses, 9, 1)) if len(similar) > 1 else similar[0]

    def _measure(self, handle: Handle, index: int, addresses: Mapping[int, int], repeats: int, runs: int) -> float:
        """Milliseconds of `runs` runs, the median of `repeats` measurements; infinite for a plan that fails."""
        try:
            scratch = self.select(index).take()
            pointer = 0 if scratch is None else scratch.data_ptr()
            launch: Callable[[], None] = lambda: self.run(handle, addresses, pointer)  # noqa: E731
            launch()
            return timing.measure_milliseconds(launch, handle.stream, repeats, runs)
        except StatusError:
            return float("inf")


_graphs: WeakSet[OperationGraph] = WeakSet()


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]
