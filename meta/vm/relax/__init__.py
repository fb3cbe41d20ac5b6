"""From a Relax module to an executable.

executables                   executables from memory, from disk, or newly built
build                         lowering, planning and code generation in order
linked                        the library of a program, compiled by several threads or processes
pipeline                      the Relax passes, in order
parameter_sizes               symbolic sizes of which no axis of a parameter consists
tuple_items                   fusion of operators that read items of tuples
aliases                       aliases, tuples and tensor objects that programs do without
steps                         the body of "main" as a list of bindings that may be moved and rewritten
lifetimes                     the kernels of "main", the tensors between them, and how long those live
inplace, overlap, reuse       kernels that write over parameters, or over one of their operands
bundle                        small kernels as one
order                         the order of kernels that keeps the fewest bytes alive
communication, gather_again   collectives while other kernels run, and parameters gathered twice
budget, rematerialise         programs within a budget of memory, which compute tensors again
workspace                     memory of kernels as tensors of the program
storage, destinations         the memory of tensors, and programs that take theirs from the caller
allocations                   the bytes that a planned module allocates
"""
