"""Redrive inside the frameworks people use; each needs its framework, and nothing else does."""
