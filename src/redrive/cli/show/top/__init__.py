"""What `redrive top` draws: pure functions from what was read to lines of text."""
