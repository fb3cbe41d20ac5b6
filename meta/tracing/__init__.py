"""Tracing: run a Python function on symbols and keep the program it performs.

    @meta.trace
    def step(x, target):
        loss = model(x, target)
        loss.backward()
        optimizer.step()
        return loss

The traced function still runs eagerly when called; `record` gives its program, which is what `meta.vm.compile` and
the passes take. The program does what the eager call does:

- Arrays that the function reaches without being given them (parameters, buffers, optimizer state) become parameters
  that follow the inputs, under the names their models give them. Arrays created inside become constants.
- A tensor that is overwritten (by an operator that works in place, `update`, `x[i] = v`) has the new value from there
  on, and so have its views; at the end the value of an array is a result which replaces the parameter
  (`FunctionExpr.attrs[MUTATES]`).
- Gradients flow where they would eagerly: to arrays that require them, not through what is computed under `no_grad`,
  and once a graph unless `retain_graph` says otherwise (see meta.tracing.values). `.grad` starts as None. What it is at
  the end replaces the arrays' own `.grad` after a compiled call if the function assigned it (`x.grad = None`,
  `zero_grad`), and is added to it otherwise. Recording leaves the arrays alone.
- What Python decides on (numbers, shapes, attributes of models) is fixed in the program. Values of tensors are not
  known: asking for one is a TraceError.
"""

from __future__ import annotations

from meta.tracing.emitter import Draws as Draws
from meta.tracing.emitter import emit_decomposition as emit_decomposition
from meta.tracing.emitter import is_key as is_key
from meta.tracing.emitter import recording as recording
from meta.tracing.program import Record as Record
from meta.tracing.program import Traced as Traced
from meta.tracing.program import change_mode as change_mode
from meta.tracing.program import changed as changed
from meta.tracing.program import input_types as input_types
from meta.tracing.program import invalidate as invalidate
from meta.tracing.program import last_change as last_change
from meta.tracing.program import record as record
from meta.tracing.program import revision as revision
from meta.tracing.program import state_names as state_names
from meta.tracing.program import trace as trace
from meta.tracing.state import Held as Held
from meta.tracing.state import LeftGradient as LeftGradient
