"""The parts of a retraining: the copy it works in, the commands it runs there, what it proposes,
and what it tells.
"""
