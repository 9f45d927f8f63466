"""What DVC leaves to the pipeline: stale locks and the order of dvc.lock."""
