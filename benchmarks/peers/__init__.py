"""Measures other libraries, installed in an environment of their own."""
