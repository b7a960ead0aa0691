"""Passes over refs: what the service makes of entries by rules, and how it is undone."""
