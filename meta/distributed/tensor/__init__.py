"""Tensor parallelism: parameters divided along their axes, and programs that compute with the parts."""
