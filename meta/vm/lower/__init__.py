"""From our IR to Relax.

dispatched                   a program in the form that is lowered
choose                       the dialect of every operator call
recompute                    tensors that each kernel computes again
lift                         closures and branches as functions of the module, constants as parameters
size_carriers                tensors from whose shapes these functions know symbolic sizes
tail_recursion, loop_calls   recursion and loops as functions in Python that repeat a step
calls, stack                 calls inside of programs that check how much of the stack is left
open_calls                   calls whose result shapes depend on values
types                        types and symbolic sizes in Relax
translate                    the Relax module
first_calls                  first calls of library kernels, while other kernels are compiled
python_errors                exceptions of the functions in Python that programs call
"""
