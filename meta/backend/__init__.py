"""Backends that run operators: memory, TVM, CUDA, cuDNN, torch. They import no operator."""
