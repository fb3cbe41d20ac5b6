"""NumPy: elimination, moments, random bits and dtypes of the reference implementations."""
