"""iqn: many agents in one grid world, an implicit quantile network each."""
