"""Computes in TE that the families share."""
