"""Shared code of the torch models."""
