"""Parts of a cycle beside learning: acting, playing, recording."""
