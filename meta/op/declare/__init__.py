"""Declarations: for each operator, its type function and the facts about it, one module a family."""
