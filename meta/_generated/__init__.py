"""Generated code: written by `python -m scripts.src_codegen`, committed, never edited by hand (except this file)."""
