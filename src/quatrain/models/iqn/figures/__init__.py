"""Figures of a trained iqn."""
