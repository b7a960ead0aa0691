"""Memories, sessions and their lives."""
