"""A Bayesian filter over state and field weights."""
