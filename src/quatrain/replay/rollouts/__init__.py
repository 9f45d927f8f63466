"""On-policy rollouts: the memory that they are written to, and the advantages that are made of them."""
