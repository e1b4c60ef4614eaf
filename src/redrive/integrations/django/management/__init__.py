"""What `manage.py` can do."""
