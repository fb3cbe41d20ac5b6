"""Execution plans, built once per problem. If a problem has several, the first call measures them on its tensors and
keeps the fastest, which later processes read from disk. Eager calls, programs and threads share the plans of equal
problems."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from threading import RLock
from typing import TypeVar

from meta.backend.cuda import driver
from meta.backend.cudnn import choices
from meta.backend.cudnn.c_functions import StatusError
from meta.backend.cudnn.frontend import OperationGraph
from meta.backend.cudnn.handle import Handle, Workspace, address
from meta.errors import KernelError

_Problem = TypeVar("_Problem", bound=Hashable)


class Solution:
    """The plans of a problem. refusal: why there are none, or None."""

    def __init__(
        self, problem: Hashable, build_graph: Callable[[], OperationGraph], limit: int, avoid: Sequence[str]
    ) -> None:
        self.refusal: str | None = None
        self._workspace: Workspace | None = None
        self._lock = RLock()
        self._limit = limit
        self._avoid = avoid
        self._plans: Sequence[int] = ()
        self._build_graph = build_graph
        self._untried = False
        """Whether the plan was stored by another process and has not run here."""
        try:
            self._graph = build_graph()
            self._key = choices.key(problem, self._graph.handle.device, limit, avoid)
            self._untried = self._restore()
            if not self._untried:
                self._build()
        except StatusError as error:
            self.refusal = str(error)

    def _restore(self) -> bool:
        """Load the plan that an earlier process chose; returns whether there is one that loads."""
        data = choices.read(self._key)
        if data is None:
            return False
        try:
            self._workspace = self._graph.select(self._graph.restore(data))
        except StatusError:
            choices.remove(self._key)
            return False
        return True

    def _build(self) -> None:
        """Build the first plan, and choose it if no other is to be compared with it."""
        self._plans = self._graph.build_plans(self._avoid)
        if self._limit == 1 or len(self._plans) == 1:
            self._select(self._plans[0])

    def _select(self, plan: int) -> Workspace:
        """Launch `plan` from now on, in later processes too, if cuDNN writes it. (The engine and its settings would not
        do: plans of some engines do not build from them.)"""
        self._workspace = self._graph.select(plan)
        data = self._graph.compiled_plan()
        if data is not None:
            choices.write(self._key, data)
        return self._workspace

    def run(self, handle: Handle, addresses: Mapping[int, int]) -> None:
        """Launch the fastest plan. Raises StatusError, and KernelError if a capture runs before the plan is chosen."""
        workspace = self._workspace or self._choose_plan(handle, addresses)
        if self._untried and not driver.is_capturing(handle.stream):
            self._run_restored(handle, addresses, workspace)
            return
        scratch = workspace.take()
        self._graph.run(handle, addresses, address(scratch))

    def _run_restored(self, handle: Handle, addresses: Mapping[int, int], workspace: Workspace) -> None:
        """The first run of a loaded plan; if it does not run, one is chosen here."""
        with self._lock:
            self._untried = False
            scratch = workspace.take()
            try:
                self._graph.run(handle, addresses, address(scratch))
                return
            except StatusError:
                choices.remove(self._key)
                self._graph, self._workspace = self._build_graph(), None
                self._build()
        self.run(handle, addresses)

    def _choose_plan(self, handle: Handle, addresses: Mapping[int, int]) -> Workspace:
        if self.refusal:
            raise StatusError("nvidia-cudnn-frontend", self.refusal)
        with self._lock:
            if self._workspace is None:
                if driver.is_capturing(handle.stream):
                    raise KernelError(
                        "cudnn",
                        f"{self._graph.description} has no plan yet, and plans cannot be measured in a CUDA graph",
                        "a call that ran before the capture",
                        "run it once before the capture",
                    )
                return self._select(self._graph.fastest(handle, self._plans, self._limit, addresses))
        return self._workspace


LIMIT = 1024
"""Problems whose solutions are kept; beyond it, all are dropped. Kernels keep the solutions that they use."""
_solutions: dict[Hashable, Solution] = {}
_lock = RLock()


def solve(
    problem: _Problem,
    handle: Handle,
    build_graph: Callable[[_Problem, Handle], OperationGraph],
    limit: int = 1,
    avoid: Sequence[str] = (),
) -> Solution:
    """The cached or new solution of a problem.

    build_graph: builds its graph.  limit: plans to compare.  avoid: numerical notes that plans must not have."""
    solution = _solutions.get(problem)
    if solution is None:
        with _lock:
            solution = _solutions.get(problem)
            if solution is None:
                if len(_solutions) >= LIMIT:
                    _solutions.clear()
                solution = Solution(problem, partial(build_graph, problem, handle), limit, avoid)
                _solutions[problem] = solution
    return solution
