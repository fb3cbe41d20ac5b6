"""Linear algebra composed of operators."""
