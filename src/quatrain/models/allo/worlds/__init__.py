"""Where allo walks: each module collects walks, tells where their states are, and serves them."""
