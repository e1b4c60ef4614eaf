"""Explaining: why a delivery waits, and what is wrong with the system, in words for a person."""
