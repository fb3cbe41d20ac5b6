"""Python text of operators: signatures, docstrings, and the functions and methods that call them.

`python -m scripts.src_codegen` writes `meta/_generated/` with it, `meta.define` compiles the functions of users'
operators from it, and `python -m meta codegen` writes typed modules of theirs.
"""
