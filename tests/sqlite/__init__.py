"""SQLite's files."""
