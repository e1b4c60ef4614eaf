"""How our figures change with size, features and load; one module for each question."""
