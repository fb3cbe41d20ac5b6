"""Eager execution: arrays, the call of an operator, and the tape that differentiates it."""
