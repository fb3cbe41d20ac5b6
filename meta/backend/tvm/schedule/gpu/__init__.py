"""Schedules for CUDA."""
