"""Figures of training, and of replayed episodes."""
