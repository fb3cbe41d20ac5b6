"""CPU rules: elementwise blocks, rows (reductions, softmax, norms) and contractions."""
