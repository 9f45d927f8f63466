"""Grid worlds: maps from text, maps from numbers, and their dynamics."""
