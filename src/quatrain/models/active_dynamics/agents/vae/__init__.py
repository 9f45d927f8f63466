"""seq_vae: a sequential variational autoencoder, which learns states and field by gradients."""
