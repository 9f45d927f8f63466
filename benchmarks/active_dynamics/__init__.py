"""active_dynamics's speed, side by side with plain references."""
