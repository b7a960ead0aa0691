-- What makes two memories say the same is found by a fingerprint of all of it, however many have
-- equal contents. Both indexes together are smaller than the one by the hash of the content was.

ALTER TABLE memories ADD COLUMN fingerprint INTEGER NOT NULL DEFAULT 0;

UPDATE memories
   SET fingerprint = fingerprint_of(CAST(key AS BLOB), CAST(type AS BLOB), CAST(title AS BLOB),
                                    CAST(content_hash AS BLOB));

DROP INDEX memories_by_hash;
CREATE INDEX memories_by_hash ON memories (space_id, fingerprint, deleted_at, created_at);

-- An imported memory without a stable id is known by the second of its creation, too. Seconds are
-- counted from the year 1, so that a division rounds all of them down.
CREATE INDEX memories_by_second ON memories (
    space_id, (created_at + 62135596800000000) / 1000000, fingerprint, session_id,
    deleted_at IS NOT NULL
);
