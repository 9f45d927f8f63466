"""Sweeps: trials of the pipeline's stages, placed on the machines of a Ray cluster."""
