"""The decisions: pure functions of a state, the present and chance."""
