-- What was answered is stored beside the idempotency key, as JSON. It goes with the memories that it
-- tells of; the key stays. The ids of which answers were made before are empty from now on.

ALTER TABLE done ADD COLUMN answer TEXT COLLATE "C";

CREATE TABLE done_memories (
    memory_id BIGINT NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    key       BYTEA  NOT NULL REFERENCES done (key) ON DELETE CASCADE,
    PRIMARY KEY (memory_id, key)
);

CREATE INDEX done_memories_by_key ON done_memories (key);

CREATE FUNCTION forget_answer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE done SET answer = NULL WHERE key = old.key;
    RETURN NULL;
END $$;

CREATE TRIGGER done_memories_gone AFTER DELETE ON done_memories
    FOR EACH ROW EXECUTE FUNCTION forget_answer();

-- What a misspelt word may have meant is told by the postings.
DROP TABLE terms;
