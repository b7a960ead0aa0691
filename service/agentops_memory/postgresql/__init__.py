"""The engine that stores memories in PostgreSQL, for users who outgrow one machine."""
