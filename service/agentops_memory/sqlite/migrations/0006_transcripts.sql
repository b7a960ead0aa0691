-- What was told of sessions as they go, until they end: counts, and two messages that are cut.

CREATE TABLE transcripts (
    session   INTEGER PRIMARY KEY REFERENCES sessions (number) ON DELETE CASCADE,
    messages  INTEGER NOT NULL,
    user      INTEGER NOT NULL,
    assistant INTEGER NOT NULL,
    first     TEXT    NOT NULL,
    last      TEXT    NOT NULL,
    heard_at  INTEGER NOT NULL
) STRICT;

CREATE INDEX transcripts_by_time ON transcripts (heard_at);
