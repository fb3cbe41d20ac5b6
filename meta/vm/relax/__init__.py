"""From a Relax module to an executable.

executables     from memory, from disk, or newly built
build           lowering, planning and code generation in order
pipeline        the Relax passes
aliases         aliases, tuples and tensor objects that programs do without
steps           the body of "main" as a list of bindings that may be moved and rewritten
inplace         parameters that a program updates keep their memory
overlap         when a kernel may write over one of its operands
destinations    programs that take their memory from the caller
allocations     the bytes that a planned module allocates
"""
