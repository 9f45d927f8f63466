"""What an iteration does beside the network: act, play, learn, share between processes."""
