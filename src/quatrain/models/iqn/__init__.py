"""iqn: many agents in one grid world, an implicit quantile network each."""

FRAMEWORK = "jax"
ORDER = 2
