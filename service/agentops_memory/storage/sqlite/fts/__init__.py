"""The full-text index: FTS5 tables split into partitions; search, scores, explanation, upkeep."""
