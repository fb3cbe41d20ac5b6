"""Converters of Relay operators, by family."""
