"""Stores with one line spoiled: each must be caught by the tests, within seconds."""
