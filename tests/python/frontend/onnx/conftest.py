"""These tests read models by onnx and onnx-ir, and compare with onnxruntime: without them they are not collected."""

from importlib.util import find_spec

_NEEDED = ("onnx", "onnx_ir", "onnxruntime")
collect_ignore_glob = [] if all(map(find_spec, _NEEDED)) else ["test_*.py"]
