"""CUDA rules: elementwise blocks, rows, reductions of outer axes, separate kernels and hand-written loops."""
