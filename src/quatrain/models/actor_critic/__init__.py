"""actor_critic: PPO steers a growing colony of cells up a gradient of stiffness."""

FRAMEWORK = "torch"
ORDER = 3
