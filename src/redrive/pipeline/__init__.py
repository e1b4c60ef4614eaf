"""The stages of the way, one module each; they meet in the worker, not in each other."""
