"""The full-text index: partitions of FTS5 tables, their search, scores and maintenance."""
