"""Adapters to other trainers. They hold no mathematics."""
