"""The roles of the store contract on SQLite, one file each."""
