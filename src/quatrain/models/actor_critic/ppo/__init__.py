"""Proximal policy optimisation: check of the dataset, policy, rollouts, updates, metrics, processes."""
