-- What is in memory of a partition is of one version of it: each change makes another.
ALTER TABLE partitions ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
