"""Environments under the Gymnasium API."""
