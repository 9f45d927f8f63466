"""Worlds as pure reset and step functions, with their ground truths."""
