"""From our IR to Relax.

source        a program in the form that is lowered
choose        the dialect of every operator call
lift          closures and branches as functions of the module, constants as parameters
open_calls    calls whose result shapes depend on values
types         types and symbolic sizes in Relax
translate     the Relax module
"""
