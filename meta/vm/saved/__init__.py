"""Programs in files, which run without the source of what they were compiled from.

kernels       the functions of libraries that a program calls, by operator and dialect
convention    how a program is called, as JSON and IR text
files         programs to files, and back, and a loaded program
"""

from __future__ import annotations

from meta.vm.saved.files import LoadedExecutor as LoadedExecutor
from meta.vm.saved.files import load as load
from meta.vm.saved.files import write as write

__all__ = ["LoadedExecutor", "load", "write"]
