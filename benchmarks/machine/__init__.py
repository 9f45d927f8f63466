"""What this machine can do at best, and how long a stage takes to begin."""
