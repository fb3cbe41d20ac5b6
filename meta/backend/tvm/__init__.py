"""TVM: its names, targets, kernels and their storage."""
