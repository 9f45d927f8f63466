"""The work of the DVC stages: `python -m pipeline.VERB` calls `VERB` of the module VERB."""
