"""Functions that call operators and need no kernel."""
