"""From our IR to Relax.

choose       programs ready to be lowered: the dialect of every operator call
recompute    tensors that each kernel computes again
calls        calls that functions in Python make: loops, recursion that checks the rest of the stack, and calls whose
             result shapes depend on values
translate    the Relax module
"""
