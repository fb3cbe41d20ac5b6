"""Relay programs: readers of text and JSON, and their conversion to meta's IR."""
