"""Random bits and dtypes of the NumPy implementations."""
