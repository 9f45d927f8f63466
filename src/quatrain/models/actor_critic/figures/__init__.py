"""Episodes to draw, and figures of them."""
