"""nvidia-cudnn-frontend (module `cudnn`), the only code here that touches it: graphs of operations and their plans.

Tensors of a graph have numbers that the caller chooses; a plan runs on a map from those numbers to addresses.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from threading import Lock
from typing import Any
from weakref import WeakSet

from meta.backend.cuda import timing
from meta.backend.cudnn import library
from meta.backend.cudnn.descriptors import compact
from meta.backend.cudnn.functions import StatusError
from meta.backend.cudnn.handle import Handle, Workspace

MOST_WORKSPACE = 4 << 30
"""Bytes of scratch memory that a plan may ask for."""
_NAMES = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "HALF", "bfloat16": "BFLOAT16"}
"""The library's dtypes by ours."""


def missing() -> str | None:
    """Why there is no frontend, None if there is."""
    return None if find_spec("cudnn") else "nvidia-cudnn-frontend is not installed"


@cache
def module() -> Any:
    """The module `cudnn`, which finds the library that is loaded by then."""
    library.functions()
    found = importlib.import_module("cudnn")
    atexit.register(_release)  # after the import, so that it runs before the frontend takes itself down
    return found


def _release() -> None:
    """Let go of the graphs that kernels hold when Python ends: the frontend prints pages about those that are left."""
    for graph in list(_graphs):
        graph.close()
    gc.collect()


def data_type(dtype: str) -> Any:
    return getattr(module().data_type, _NAMES[dtype])


def _errors() -> tuple[type[Exception], ...]:
    """What the frontend raises: RuntimeError and ValueError for refusals, one class of its own."""
    return (module().cudnnGraphNotSupportedError, RuntimeError, ValueError, NotImplementedError)


def _handle(handle: Handle) -> Any:
    if handle.frontend is None:
        handle.frontend = module().Handle(handle.pointer, handle.device.index, handle.stream)
    return handle.frontend


class Graph:
    """A graph being described, then its plans. Raises StatusError with the frontend's words.

    compute: dtype of sums."""

    def __init__(self, what: str, handle: Handle, dtype: str, compute: str) -> None:
        self.what = what
        self.dtype = dtype
        self.handle = handle
        self._lock = Lock()
        self._selected = 0
        self._pointers: Any = None
        self._order: list[int] = []
        self._launch: Any = None
        self._plan = self._at = 0
        self.graph: Any = module().pygraph(
            io_data_type=data_type(dtype),
            intermediate_data_type=data_type(compute),
            compute_data_type=data_type(compute),
            handle=_handle(handle),
        )
        _graphs.add(self)

    def close(self) -> None:
        """Forget the graph; nothing runs it any more."""
        self.graph = self._launch = self._pointers = None

    def input(self, number: int, shape: Sequence[int], dtype: str = "") -> Any:
        """A row-major tensor that is read."""
        return self.graph.tensor(
            dim=list(shape), stride=list(compact(shape)), data_type=data_type(dtype or self.dtype), uid=number
        )

    def scalar(self, number: int) -> Any:
        """A float that is read from the host's memory, of rank 4."""
        ones = [1] * 4
        return self.graph.tensor(
            dim=ones, stride=ones, data_type=data_type("float32"), is_pass_by_value=True, uid=number
        )

    def output(self, made: Any, number: int, shape: Sequence[int], dtype: str = "") -> None:
        """Have a result of the graph written, row-major."""
        made.set_output(True).set_uid(number).set_data_type(data_type(dtype or self.dtype))
        made.set_dim(list(shape)).set_stride(list(compact(shape)))

    def plan(self, most: int = 1, avoid: Sequence[str] = ()) -> list[int]:
        """Build the first `most` plans that build, and say which; the first is the heuristics' favourite.

        avoid: names of numerical notes that plans must not have. Raises StatusError when there is none."""
        try:
            return self._built(most, avoid)
        except _errors() as error:
            raise StatusError(self.what, "no plan", _first_line(error)) from None

    def _built(self, most: int, avoid: Sequence[str]) -> list[int]:
        cudnn, graph = module(), self.graph
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        if avoid:
            graph.deselect_numeric_notes([getattr(cudnn.numerical_note, name) for name in avoid])
        graph.deselect_workspace_greater_than(MOST_WORKSPACE)
        graph.check_support()
        made: list[int] = []
        refusal: Exception = RuntimeError("cuDNN knows no engine for it")
        for index in range(graph.get_execution_plan_count()):
            try:
                graph.build_plan_at_index(index)
                if graph.get_workspace_size_plan_at_index(index) > MOST_WORKSPACE:
                    continue
            except _errors() as error:
                refusal = error
                continue
            made.append(index)
            if len(made) == most:
                break
        if not made:
            raise refusal
        graph.build_plan_at_index(made[0])
        return made

    def select(self, index: int) -> Workspace:
        """Run this plan from now on; the scratch memory that it needs."""
        try:
            self.graph.build_plan_at_index(index)
            size = int(self.graph.get_workspace_size_plan_at_index(index))
            self._selected, self._pointers = index, None
        except _errors() as error:
            raise StatusError(self.what, "plan does not build", _first_line(error)) from None
        return Workspace(self.handle.device, size)

    def run(self, handle: Handle, addresses: Mapping[int, int], workspace: int) -> None:
        """Launch the selected plan."""
        try:
            with self._lock:  # plans of some engines keep state while they launch, and `_pointers` is one array
                if self._pointers is None:
                    self.graph.execute(dict(addresses), workspace, _handle(handle))
                    self._shorten(addresses)
                else:
                    for place, number in enumerate(self._order):
                        self._pointers[place] = addresses[number]
                    self._launch(self._at, len(self._order), workspace, handle.pointer, self._plan)
        except _errors() as error:
            raise StatusError(self.what, "execution failed", _first_line(error)) from None

    def _shorten(self, addresses: Mapping[int, int]) -> None:
        """Launch by the function that `execute` ends in from now on: what it does before, looking at whatever tensors
        it is given, takes 30 us a call. Where a version does not have that function, `execute` stays."""
        lowered: Any = getattr(self.graph, "_lowered_graph", None)
        plans: Any = getattr(self.graph, "plans", ())
        launch: Any = getattr(lowered, "_execute_with_raw_ptrs", None)
        order: Any = getattr(lowered, "_get_variant_pack_uids_sorted", tuple)()
        index: Any = getattr(plans[self._selected], "cpp_index", None) if self._selected < len(plans) else None
        if launch is None or index is None or list(order) != sorted(addresses):
            return
        self._launch, self._order, self._plan = launch, list(order), index
        self._pointers = (ctypes.c_void_p * len(order))()
        self._at = ctypes.addressof(self._pointers)

    def fastest(self, handle: Handle, plans: Sequence[int], addresses: Mapping[int, int]) -> int:
        """The fastest of some plans on these tensors, which it writes: one run each, then several of the best few.

        Of those that keep the device busy for about as long it is the one that takes least from call to result: it
        consists of fewer kernels, and with nothing else to do the device waits for each of them to be launched."""
        rough = sorted((self._time(handle, i, addresses, 3, 1), i) for i in plans)
        busy = {i: self._time(handle, i, addresses, 5, 10) / 10 for _, i in rough[:_FINALISTS]}
        near = [i for i, time in busy.items() if time <= _ALIKE * min(busy.values())]
        return min(near, key=lambda i: self._time(handle, i, addresses, 9, 1)) if len(near) > 1 else near[0]

    def _time(self, handle: Handle, index: int, addresses: Mapping[int, int], times: int, each: int) -> float:
        """Milliseconds of `each` calls, the median of `times`; infinite for a plan that fails."""
        try:
            scratch = self.select(index).take()
            pointer = 0 if scratch is None else scratch.data_ptr()
            launch: Callable[[], None] = lambda: self.run(handle, addresses, pointer)  # noqa: E731
            launch()
            return timing.milliseconds(launch, handle.stream, times, each)
        except StatusError:
            return float("inf")


_FINALISTS = 4
_ALIKE = 1.03
"""Ratio of times up to which plans count as equally fast."""
_graphs: WeakSet[Graph] = WeakSet()


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]
