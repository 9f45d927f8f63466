"""Treasure hunt: agents share a grid world, move in turn and collect the items that spawn."""
