"""Argument schemas: what an operator is called with, said once.

A schema lives in the module of its family (`meta/schema/nn.py`) and may serve many operators. From it are derived
argument checking and normalisation, cache keys, printing, the generated public signatures and the reference docs.
"""
