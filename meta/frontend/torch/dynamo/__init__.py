"""`torch.compile(model, backend="meta")`.

backend    the entry point: AOTAutograd's graphs, `explain`
options    what `options={...}` accepts
convert    a graph of ATen calls as a program
shapes     sizes and layouts of torch's fake tensors
layouts    layouts of activations that the backward graph reads
targets    what nodes call
foreign    operators that torch runs inside of a program
call       the call of a program with torch tensors
report     what became of each graph
"""

from __future__ import annotations
