"""The gradients of the operators, a generated module for each family; meta.op.grad.rule imports it."""
