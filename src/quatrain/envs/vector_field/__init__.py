"""A point that flows in a vector field, is pushed by actions, and is seen through noisy
channels.
"""
