"""Kernels of large programs, compiled by several processes at once."""
