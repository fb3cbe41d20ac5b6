"""torch: views of tensors for its functions, products by its BLAS, and groups of processes."""
