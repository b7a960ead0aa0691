-- An imported memory without a stable id is also found by its fingerprint, time of creation and
-- session, so that one index fewer is written by each save.

DROP INDEX memories_by_second;
DROP INDEX memories_by_hash;
CREATE INDEX memories_by_hash ON memories (
    space_id, fingerprint, deleted_at, created_at, session_id
);
