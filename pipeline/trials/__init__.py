"""many trainings: sweeps, studies and comparisons as trials, run by one engine."""
