"""actor_critic's speed, side by side with plain references."""
