"""What a person, make or CI calls: `python -m pipeline.commands.NAME`."""
