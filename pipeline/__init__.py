"""The outside: disk, clock, argv, MLflow, DVC and signals, one verb per file."""
