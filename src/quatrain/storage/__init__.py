"""Files: formats, folders written whole or not at all, and what a config names."""
