"""From a planned program to an executable.

executables   executables from memory, from disk, or newly built
generate      lowering, planning and code generation in order, by several threads or processes
"""
