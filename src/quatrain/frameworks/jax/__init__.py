"""What JAX models share."""
