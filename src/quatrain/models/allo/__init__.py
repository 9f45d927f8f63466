"""allo: ordered Laplacian eigenvectors by an augmented Lagrangian, learned from walks."""

FRAMEWORK = "jax"
ORDER = 1
