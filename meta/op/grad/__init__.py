"""Gradients: `derivatives.yaml`, and one module per family with the functions that it names."""
