"""Studies: what each of them varies, and what its table shows."""
