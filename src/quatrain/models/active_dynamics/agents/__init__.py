"""Learners at work: beliefs and networks of all rows, and how the active arm plans what to ask."""
