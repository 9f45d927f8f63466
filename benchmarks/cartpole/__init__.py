"""Trains learners on CartPole-v1, this project's and those of stable-baselines3."""
