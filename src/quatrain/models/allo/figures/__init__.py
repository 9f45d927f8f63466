"""Figures of a trained allo."""
