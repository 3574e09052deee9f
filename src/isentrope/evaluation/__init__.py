"""Scores of a model on a set of problems, with their intervals."""
