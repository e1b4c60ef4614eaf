"""Those who watch: logs and hooks."""
