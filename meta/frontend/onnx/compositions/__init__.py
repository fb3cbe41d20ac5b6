"""Operators of meta by other operators of meta, by family (see `_table`)."""
