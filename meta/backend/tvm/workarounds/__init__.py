"""What TVM 0.27 does wrong, or slowly, with the kernels of this package, and how they do without: one file for a fault.

Each file begins with the symptom in TVM. `tests/python/backend/tvm/test_workarounds.py` shows it without this package,
and fails once TVM is right: then the file goes.

    file            fault                                                                        costs
    exact           the simplifier takes floats for real numbers, integers for unlimited ones    2 walks of a function
    select          it simplifies each side of a selection under the condition                   a call in a compute
    loop_partition  loops are divided by conditions into parts that overlap                      1 walk
    floors          flattening loses the offsets of quotients in indices on GPUs                 1 walk, 1 analysis
    registers       nested variables are analysed in time exponential in their nesting           1 walk
    small_buffers   small buffers of parallel loops are on the heap                              1 walk
    bfloat16        it is not legalised in variables and vectors; NaNs round to infinity or 0    2 walks
    bool_vectors    vectors of bools are stored as 16 bits by CUDA code, not analysed for LLVM   1 walk
    cuda_text       infinities and choices by one condition become text that NVRTC refuses       2 walks on GPUs
    empty_grids     kernels are launched with one block where a symbolic size is 0               1 walk
    parameter_sizes the machine reads sizes only from axes that are a variable                     1 walk of parameters
    heap            each analysis takes 18 MB from the system and gives them back                1 call a process

The walks happen only in functions that have such nodes, and before a kernel is built: no call pays for them."""
