"""What torch models share."""
