"""The environments of PPO: colonies, and those that a user brings."""
