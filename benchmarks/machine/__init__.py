"""Measures the limits of this machine and the start-up time of a stage."""
