"""The rows of ONNX's operators, by family (see `_row`)."""
