"""Requests: a destination is asked for an answer, past the deliveries but through its gate."""
