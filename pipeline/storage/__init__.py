"""Files: written whole or not at all, verified before use."""
