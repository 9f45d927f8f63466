"""Walks of any length back to back, sampled in pairs whose lag is geometric."""
