"""Memories in PostgreSQL: for users who outgrow one machine."""
