"""Writes `meta/_generated/` and the operator reference from the registry. Run: `python -m scripts.src_codegen`.

Each module is a pure function from the registry to text; adding one operator changes only that operator's lines.
"""
