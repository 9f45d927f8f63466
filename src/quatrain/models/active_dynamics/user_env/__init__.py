"""A system that a user brings: a Gymnasium environment, or recorded runs."""
