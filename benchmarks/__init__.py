"""Benchmarks against torch in the same process: `python -m benchmarks`."""
