-- What a misspelt word may have meant is told by the stems that are in memory, or by FTS5.
DROP TABLE terms;
