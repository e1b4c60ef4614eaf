"""Where the demo can play."""
