"""The embedded engine: WAL-mode SQLite files with FTS5 indexes, one for each tenant."""

from .engine import SqliteEngine, TenantsEngine

__all__ = ["SqliteEngine", "TenantsEngine"]
