"""The Bayesian filter: a belief about state and field weights together."""
