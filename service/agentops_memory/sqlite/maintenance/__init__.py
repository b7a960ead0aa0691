"""Maintenance of a database file: checks, repair, scrubbing of erased bytes, sizes."""
