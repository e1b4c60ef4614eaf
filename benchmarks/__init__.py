"""Benchmarks: the engine, the raw limit of its store and its peers, measured in one run."""
