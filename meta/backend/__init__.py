"""Backends that run operators: memory, TVM, CUDA, cuDNN, torch, Triton and NumPy. They import no operator."""
