"""Trains a plain deep Q-network on CartPole with this project's replay."""
