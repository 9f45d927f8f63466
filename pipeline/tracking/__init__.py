"""Runs, metrics and models in MLflow, delivered from a journal on disk."""
