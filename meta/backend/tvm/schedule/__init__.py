"""Schedules of TIR functions: `patterns.schedule` chooses the rule, `cpu` and `gpu` hold the rules."""
