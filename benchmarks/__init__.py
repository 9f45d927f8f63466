"""Speed of the project against plain references that compute the same."""
