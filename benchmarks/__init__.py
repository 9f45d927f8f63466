"""Measures the project against plain references that compute the same."""
