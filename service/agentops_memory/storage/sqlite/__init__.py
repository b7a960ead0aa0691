"""The embedded engine: one WAL-mode SQLite file with an FTS5 index."""

from .engine import SqliteEngine

__all__ = ["SqliteEngine"]
