"""active_dynamics: learns an unknown vector field from noisy channels by informative actions."""

FRAMEWORK = "torch"
ORDER = 4
