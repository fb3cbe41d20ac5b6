"""Pictures of the documentation as SVG, drawn from tables and text of the repository: `python -m scripts.pictures`."""
