"""Schedules of TIR functions."""
