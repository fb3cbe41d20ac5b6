"""NVIDIA's library for networks."""
