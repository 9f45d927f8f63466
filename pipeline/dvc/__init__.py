"""What is done around `dvc repro`: its workspace and locks before, baselines and records after."""
