"""CUDA: its driver, streams, memory and compiler."""
