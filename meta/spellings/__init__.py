"""Names that PyTorch, NumPy, JAX and Keras have for what is called otherwise here, and what to write for them.

Errors about unknown attributes and arguments look them up here. The documentation lists the tables on the page "Names
of other libraries", and a test runs every row: the left side fails with a message that has the right side, which runs.
"""
