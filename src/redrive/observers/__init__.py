"""Those who watch: logs, hooks and metrics."""
