"""Walks of any length, stored back to back and sampled in pairs with a geometric lag."""
