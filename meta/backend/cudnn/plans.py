"""Plans of graphs: found once for each problem; of several, the fastest is chosen by measuring them on the first call's
tensors. A problem is found again by its value, so that eager calls and programs, and all threads, share its plan."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from threading import RLock

from meta.backend.cuda import driver
from meta.backend.cudnn.frontend import Graph
from meta.backend.cudnn.functions import StatusError
from meta.backend.cudnn.handle import Handle, Workspace, address
from meta.errors import KernelError


class Solution:
    """The plans of a problem. refusal: why there are none."""

    def __init__(self, describe: Callable[[], Graph], most: int, avoid: Sequence[str]) -> None:
        self.refusal: str | None = None
        self._workspace: Workspace | None = None
        self._lock = RLock()
        try:
            self._graph = describe()
            self._plans = self._graph.plan(most, avoid)
        except StatusError as error:
            self.refusal = str(error)
            return
        if len(self._plans) == 1:
            self._workspace = self._graph.select(self._plans[0])

    def run(self, handle: Handle, addresses: Mapping[int, int]) -> None:
        """Launch the fastest plan. Raises StatusError, and KernelError when it is not chosen yet during capture."""
        workspace = self._workspace or self._chosen(handle, addresses)
        scratch = workspace.take()
        self._graph.run(handle, addresses, address(scratch))

    def _chosen(self, handle: Handle, addresses: Mapping[int, int]) -> Workspace:
        if self.refusal:
            raise StatusError("nvidia-cudnn-frontend", self.refusal)
        with self._lock:
            if self._workspace is None:
                if driver.capturing(handle.stream):
                    raise KernelError(
                        "cudnn",
                        f"{self._graph.what} first runs while a CUDA graph is captured, where plans cannot be measured",
                        "calls that ran before",
                        "run it once before the capture",
                    )
                self._workspace = self._graph.select(self._graph.fastest(handle, self._plans, addresses))
        return self._workspace


LIMIT = 1024
"""Problems that are remembered; a program that meets more starts over. Kernels keep the solutions that they use."""
_solutions: dict[Hashable, Solution] = {}
_lock = RLock()


def solve(problem: Hashable, describe: Callable[[], Graph], most: int = 1, avoid: Sequence[str] = ()) -> Solution:
    """The solution of a problem, looked for once: its graph by `describe`, of which up to `most` plans are compared,
    those with a numerical note in `avoid` left out."""
    found = _solutions.get(problem)
    if found is None:
        with _lock:
            found = _solutions.get(problem)
            if found is None:
                if len(_solutions) >= LIMIT:
                    _solutions.clear()
                found = _solutions[problem] = Solution(describe, most, avoid)
    return found
