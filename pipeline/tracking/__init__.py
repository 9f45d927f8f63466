"""Runs, metrics and models in MLflow, delivered from outboxes on the disk."""
