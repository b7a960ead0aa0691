"""PostgreSQL beside SQLite, over the same memories, in one run."""
