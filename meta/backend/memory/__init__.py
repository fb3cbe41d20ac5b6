"""Memory of arrays: allocation, and what is shared with NumPy and through DLPack."""
