"""From a lowered program to one whose kernels have an order and whose tensors have memory.

pipeline        the steps, in order
fusion          operators that share a kernel
kernels         a function as a flat list of kernel calls
relax           lists from Relax, and back
graph           what calls depend on, how long tensors live, and the order that keeps the fewest bytes
functions       kernels made of others: results over operands, copies, buffers as arguments
communication   collectives while other kernels run, and parameters gathered twice
budget          programs within a budget of memory, which compute tensors again
memory          the memory of tensors, and of new values of parameters
bundle          small kernels as one
verify          the verifier of plans
"""
