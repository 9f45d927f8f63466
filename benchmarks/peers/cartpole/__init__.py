"""A cart with a pole, and a plain deep Q-learner on it that stores in this project's ring."""
