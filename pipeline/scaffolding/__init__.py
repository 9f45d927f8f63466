"""A further model: what is written for it, and where."""
