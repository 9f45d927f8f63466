"""Treasure hunt: agents that share a grid world, move one after another and collect what grows there."""
