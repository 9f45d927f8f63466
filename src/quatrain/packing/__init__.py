"""Learners as flat arrays by name: a module per framework, and what both hold the arrays against."""
