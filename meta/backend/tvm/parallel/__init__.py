"""Kernels of a program, compiled by several threads or processes at once."""
