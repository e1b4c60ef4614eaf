"""The ways to a destination."""
