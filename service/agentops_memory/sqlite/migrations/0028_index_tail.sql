-- New memories wait for the full-text index, many together: those after this one wait.
ALTER TABLE index_rules ADD COLUMN indexed_to INTEGER NOT NULL DEFAULT 0;
UPDATE index_rules SET indexed_to = (SELECT coalesce(max(id), 0) FROM memories);
