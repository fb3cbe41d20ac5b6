"""Views of tensors for torch."""
