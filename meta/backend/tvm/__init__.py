"""TVM: its names, targets, kernels and where they are kept."""
