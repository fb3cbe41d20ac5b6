"""Recording calls of programs as CUDA graphs, and starting them.

setup    whether a program gains from a graph, and the call with one
call     warming up, recording, launching
"""
