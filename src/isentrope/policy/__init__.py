"""The language model, and what samples from it."""
