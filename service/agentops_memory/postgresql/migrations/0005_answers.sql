-- An answer is stored with its idempotency key, as JSON. It is erased with the memories in it; the
-- key stays. The column `ids`, from which answers were built before, is empty from now on.

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

-- Corrections of typos are found in the postings.
DROP TABLE terms;
