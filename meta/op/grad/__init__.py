"""Gradients: `derivatives.yaml`, and the functions that it names, one module a family."""
