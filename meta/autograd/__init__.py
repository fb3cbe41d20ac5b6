"""Reverse-mode differentiation of eager computations: a tape, its backward walk, and what users do with it."""
