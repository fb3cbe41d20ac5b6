"""The judge of derivatives beside singular points: `python -m tests.python.singular`.

Every differentiable elementwise operator, by its samples, at zeros, denormals, borders of domains and dtypes, beside
poles and removable singularities, and in the tails: value, first and second derivatives, in eager calls, forward mode,
the reference dialect and programs, in every floating dtype, against mpmath where the formula is known there, and torch.
"""
