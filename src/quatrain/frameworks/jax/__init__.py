"""Shared parts of the JAX models."""
