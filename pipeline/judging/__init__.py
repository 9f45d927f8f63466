"""Scores against baselines."""
