"""The vocabulary: frozen values without I/O."""
