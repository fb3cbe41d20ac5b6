"""meta's operators as operators of Relax, by family (see `_table`)."""
