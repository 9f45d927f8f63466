"""What figures are of, computed once, and how each is drawn."""
