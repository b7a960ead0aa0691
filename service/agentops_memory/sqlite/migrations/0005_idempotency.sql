-- What was done under an idempotency key is not done again. Of the key and of the request digests
-- are kept, of the outcome ids and numbers alone.

CREATE TABLE done (
    key     BLOB    PRIMARY KEY,
    request BLOB    NOT NULL,
    status  INTEGER NOT NULL,  -- of the answer
    ids     TEXT    NOT NULL,
    at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX done_by_time ON done (at);
