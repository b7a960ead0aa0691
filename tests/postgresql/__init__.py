"""PostgreSQL, and what differs from SQLite."""
