-- What was answered is stored beside the idempotency key, as JSON. It goes with the memories that it
-- tells of; the key stays. The ids of which answers were made before are empty from now on.

ALTER TABLE done ADD COLUMN answer TEXT;

CREATE TABLE done_memories (
    memory_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    key       BLOB    NOT NULL REFERENCES done (key) ON DELETE CASCADE,
    PRIMARY KEY (memory_id, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX done_memories_by_key ON done_memories (key);

CREATE TRIGGER done_memories_gone AFTER DELETE ON done_memories BEGIN
    UPDATE done SET answer = NULL WHERE key = old.key;
END;
