"""Saving and loading models and training states: `meta.save`, `meta.load`.

api            the two functions
named_arrays   nests of arrays, plain values and objects with a state, as named arrays and JSON
restore        writing what was loaded into models, optimizers and arrays
"""
