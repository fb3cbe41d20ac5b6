"""meta's operators as nodes of ONNX, by family (see `_table`)."""
