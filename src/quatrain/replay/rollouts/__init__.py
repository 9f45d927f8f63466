"""On-policy rollouts: their preallocated memory, and generalised advantage estimation."""
