"""What is judged of each kind of environment."""
