"""The engine: one writer with group commit, readers, and a database for each tenant."""
