"""Operators of Relax as operators of meta, by family (see `_table`)."""
