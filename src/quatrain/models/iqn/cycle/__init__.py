"""What a cycle does beside learning: act, play, note what happened."""
