"""allo's speed, side by side with plain references."""
