"""Trainings outside DVC: comparisons, own data, profiles; each writes a table or a file."""
