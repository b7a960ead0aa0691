"""The operations of operators on a database and its files."""
