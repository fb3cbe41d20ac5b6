"""Functions that are made of operators when they are called.

They need no declaration, gradient or kernel of their own: eager calls, traced programs, derivatives of every order and
mixed precision follow from the operators that they call.
"""
