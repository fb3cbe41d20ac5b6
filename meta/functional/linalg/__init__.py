"""Linear algebra composed of operators: the functions of `meta.linalg`."""
