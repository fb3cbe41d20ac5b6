"""Backends: one package a dialect, one module a family of operators."""
