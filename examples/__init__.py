"""Scripts that train a model: `python -m examples.mlp`. `--compare-torch` trains the same model in torch."""
