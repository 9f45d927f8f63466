"""active_dynamics: learn an unknown vector field from noisy channels, by actions that teach most."""
