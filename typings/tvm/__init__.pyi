"""The types of TVM that annotations of meta name; everything else of TVM is Any."""

from typing import Any

def __getattr__(name: str) -> Any: ...
