"""Proximal policy optimisation: policy, rollouts, updates, metrics, processes."""
