"""Parts of a cycle: acting, playing, updating agents, recording."""
