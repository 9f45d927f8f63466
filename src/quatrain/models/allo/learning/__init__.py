"""Learning: state, steps and their records, and the true spectrum that it is compared with."""
