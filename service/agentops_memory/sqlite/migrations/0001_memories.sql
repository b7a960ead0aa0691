-- Sessions and memories, the record of their changes, and the full-text index.
-- Instants are whole microseconds since 1970 in UTC, so that they compare as numbers.

CREATE TABLE spaces (
    id      INTEGER PRIMARY KEY,
    project TEXT NOT NULL,
    scope   TEXT NOT NULL,
    UNIQUE (project, scope)
) STRICT;

CREATE INDEX spaces_by_scope ON spaces (scope);

-- The number keeps the order of insertion.
CREATE TABLE sessions (
    number        INTEGER PRIMARY KEY,
    id            TEXT    NOT NULL UNIQUE,
    project       TEXT    NOT NULL,
    started_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    summary       TEXT    NOT NULL DEFAULT '',
    message_count INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX sessions_by_project ON sessions (project, started_at, number);
CREATE INDEX sessions_by_summary ON sessions (project, started_at, number)
    WHERE summary <> '';
CREATE INDEX sessions_by_start ON sessions (started_at, number);

CREATE TABLE memories (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    uid          TEXT    NOT NULL UNIQUE,
    space_id     INTEGER NOT NULL REFERENCES spaces (id),
    session_id   TEXT    NOT NULL REFERENCES sessions (id),
    key          TEXT,
    type         TEXT    NOT NULL,
    title        TEXT    NOT NULL,
    content      TEXT    NOT NULL,
    tags         TEXT    NOT NULL DEFAULT '[]',
    content_hash TEXT    NOT NULL,
    revision     INTEGER NOT NULL DEFAULT 1,
    duplicates   INTEGER NOT NULL DEFAULT 1,
    last_seen_at INTEGER NOT NULL,
    promoted_to  TEXT,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    deleted_at   INTEGER
) STRICT;

CREATE UNIQUE INDEX memories_at_key ON memories (space_id, key)
    WHERE key IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX memories_by_time ON memories (space_id, created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX memories_in_time ON memories (created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX memories_in_space ON memories (id, space_id) WHERE deleted_at IS NULL;
CREATE INDEX memories_by_hash ON memories (space_id, content_hash, created_at);

-- The newest revision has no text of its own: the memory's row is its text.
CREATE TABLE revisions (
    id        INTEGER PRIMARY KEY,
    memory_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    number    INTEGER NOT NULL,
    deed      TEXT    NOT NULL CHECK (deed IN ('created', 'updated', 'deleted')),
    at        INTEGER NOT NULL,
    type      TEXT,
    title     TEXT,
    content   TEXT,
    tags      TEXT,
    UNIQUE (memory_id, number)
) STRICT;

-- The index reads prepared text through this view, so that SQLite itself can
-- compare the two and rebuild the one from the other.
CREATE VIEW memory_text (id, title, content) AS
    SELECT id, indexed_text(title), indexed_text(content)
      FROM memories
     WHERE deleted_at IS NULL;

CREATE VIRTUAL TABLE memories_fts USING fts5 (
    title, content,
    content = 'memory_text', content_rowid = 'id',
    tokenize = "porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
);
