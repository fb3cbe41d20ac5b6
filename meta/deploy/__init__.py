"""Programs for other machines.

objects       the planned program and the machine code of its kernels for a CPU
"""
