"""Figures of one trained active_dynamics."""
