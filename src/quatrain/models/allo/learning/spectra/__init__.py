"""dataset, tables -> true eigenvectors, and how well learned ones fit them."""
