"""Make torch impossible to import in this process, as where it is not installed: for subprocesses of tests.

Both ways of asking see it gone: `import torch` raises ModuleNotFoundError, and `importlib.util.find_spec("torch")`
returns None. (tvm_ffi imports torch whenever it can, so leaving it out of `meta` alone would prove nothing.)
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class FinderWithoutTorch(PathFinder):
    """The finder of installed modules, blind to torch."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] == "torch":
            return None
        return super().find_spec(fullname, path, target)


def hide_torch() -> None:
    """Hide torch from every later import. Raises RuntimeError when it is loaded already."""
    if "torch" in sys.modules:
        raise RuntimeError("torch is loaded already: hide it before anything imports it")
    sys.meta_path[sys.meta_path.index(PathFinder)] = FinderWithoutTorch
