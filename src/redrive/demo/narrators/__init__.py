"""Ways to show the story."""
