"""Eager execution: one operator call at a time, and IR programs op by op."""
