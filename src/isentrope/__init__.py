"""Measure, predict and control policy entropy in reinforcement learning of language models."""

__all__ = ["__version__"]

__version__ = "0.1.0"
