"""A sequential variational autoencoder with a learned field."""
