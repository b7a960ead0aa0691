"""What operators do with a database and its files."""
