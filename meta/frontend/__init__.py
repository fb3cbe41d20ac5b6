"""Readers of models that were written for other systems."""
