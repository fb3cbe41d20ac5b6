"""Memory of arrays."""
