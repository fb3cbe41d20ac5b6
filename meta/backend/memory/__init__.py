"""Memory of arrays: allocation, and sharing with NumPy and through DLPack."""
