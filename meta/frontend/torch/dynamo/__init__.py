"""`torch.compile(model, backend="meta")`.

backend    the entry point: AOTAutograd's graphs, `explain`
options    what `options={...}` accepts
partition  which values the forward pass saves for the backward pass
convert    a graph of ATen calls as a program
split      graphs with sizes that depend on values
shapes     sizes of torch's fake tensors
memory     where torch's tensors are in memory: sizes, strides and offsets of each call
results    which results a program computes, and which are views
layouts    layouts of activations that the backward graph reads
writes     the writes that end a graph
targets    what nodes call
foreign    operators that torch runs inside of a program
call       the call of a program with torch tensors
roles      what CUDA graphs do with inputs and results
recorded   calls as CUDA graphs
outputs    what a call returns
report     what became of each graph
"""

from __future__ import annotations
