"""The public operators, a generated module for each family."""
