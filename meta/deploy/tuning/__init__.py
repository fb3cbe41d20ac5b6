"""Tuning of programs for the CPU that they run on: other choices of the knobs of kernels, where they win.

kernels     the kernels of a program, with any choices
timing      times of a kernel with different choices, on this machine
search      which choices of a kernel are tried, and kept
results     what was found before, in the cache of this machine
session     tuning a program

The knobs themselves are in the schedules, see `meta.backend.tvm.target`; reports, and choices in files that travel with
models, are in `meta.backend.tvm.choices`. Choices are kept by the key of a kernel and the target; a program that is
compiled with them has them in its key on disk.
"""
