"""Answers to requests in each kind of environment."""
