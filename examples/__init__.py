"""Models that train, each as a script: `python -m examples.mlp`. `--compare-torch` trains the same model in torch."""
