"""Decompositions: composite operators as functions of smaller ones, one module a family (see meta.op.decomposition)."""
