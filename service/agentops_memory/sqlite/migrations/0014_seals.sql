-- The values of entries that are confidential, encrypted: their memories have none.
CREATE TABLE seals (
    memory_id INTEGER PRIMARY KEY REFERENCES memories (id) ON DELETE CASCADE,
    key       TEXT    NOT NULL,
    nonce     BLOB    NOT NULL,
    sealed    BLOB    NOT NULL
) STRICT;
