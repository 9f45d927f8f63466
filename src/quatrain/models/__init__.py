"""One room per learner."""
