"""The TVM dialect: one TE compute per operator, scheduled by fusion pattern and compiled for the machine at hand.

Importing this package does not import TVM; the modules in it do so when a kernel is first built or loaded.
"""
