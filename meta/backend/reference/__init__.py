"""What the NumPy implementations share."""
