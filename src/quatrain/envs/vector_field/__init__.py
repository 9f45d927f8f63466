"""A vector field with actions, observed through noisy channels."""
