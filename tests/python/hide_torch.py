"""Hide torch in this process, as if it were not installed; for subprocesses of tests.

Both checks of an installation fail: `import torch` raises ModuleNotFoundError, and `importlib.util.find_spec("torch")`
returns None. (tvm_ffi imports an installed torch, so a test without this module would not be conclusive.)
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class FinderWithoutTorch(PathFinder):
    """The finder of installed modules, without torch."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] == "torch":
            return None
        return super().find_spec(fullname, path, target)


def hide_torch() -> None:
    """Hide torch from later imports. Raises RuntimeError if it is already loaded."""
    if "torch" in sys.modules:
        raise RuntimeError("torch is loaded already: hide it before anything imports it")
    sys.meta_path[sys.meta_path.index(PathFinder)] = FinderWithoutTorch
