-- An imported memory without a stable id is found by its fingerprint, too, and by when it was created
-- in which session: each save spares an index.

DROP INDEX memories_by_second;
DROP INDEX memories_by_hash;
CREATE INDEX memories_by_hash ON memories (
    space_id, fingerprint, deleted_at, created_at, session_id
);
