"""Generates `meta/_generated/` and the operator reference from the registry. Run: `python -m scripts.src_codegen`.

Each module renders the registry as text. Adding an operator changes only the lines of that operator.
"""
