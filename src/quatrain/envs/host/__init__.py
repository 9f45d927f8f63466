"""Environments of users and libraries, which step in Python on the host."""
