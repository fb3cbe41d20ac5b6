"""Speed, measured as ratios against torch in the same process: `python -m benchmarks`."""
