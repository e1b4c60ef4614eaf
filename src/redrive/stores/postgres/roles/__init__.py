"""The roles of the store contract on PostgreSQL, one file each."""
