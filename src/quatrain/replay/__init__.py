"""Replay buffers as values: what was collected, and how it is sampled."""
