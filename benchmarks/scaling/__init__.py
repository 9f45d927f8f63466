"""Measures how the time of a sweep falls with nodes, and models more nodes than there are."""
