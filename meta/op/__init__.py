"""Operators: declarations, gradients, dialects and the dispatch between them."""
