"""Engines: each owns all SQL for one database."""
