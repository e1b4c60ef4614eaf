"""What SQLite and PostgreSQL do alike, written once: statements, and the roles made of them."""
