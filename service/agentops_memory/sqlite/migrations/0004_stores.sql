-- Memory stores: a store is a space without a project, whose memories have no session and lie at
-- paths. Three tables are written anew for it, as SQLite cannot loosen a column.

PRAGMA legacy_alter_table = ON;  -- views may name a table that is about to be there

CREATE TABLE new_spaces (
    id        INTEGER PRIMARY KEY,
    project   TEXT,
    scope     TEXT    NOT NULL,
    area      INTEGER NOT NULL DEFAULT 0,
    partition INTEGER,
    UNIQUE (project, scope)
) STRICT;

INSERT INTO new_spaces (id, project, scope, area, partition)
SELECT id, project, scope, area, partition
  FROM spaces;

DROP TABLE spaces;
ALTER TABLE new_spaces RENAME TO spaces;

CREATE INDEX spaces_by_scope ON spaces (scope);
CREATE INDEX spaces_by_area ON spaces (area, partition);
CREATE INDEX spaces_by_partition ON spaces (partition);

-- The content comes last: what is read before it does not lead through its pages.
CREATE TABLE new_memories (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    uid          TEXT    NOT NULL UNIQUE,
    space_id     INTEGER NOT NULL REFERENCES spaces (id),
    session_id   TEXT    REFERENCES sessions (id),
    key          TEXT,
    type         TEXT    NOT NULL,
    title        TEXT    NOT NULL,
    tags         TEXT    NOT NULL DEFAULT '[]',
    content_hash TEXT    NOT NULL,
    revision     INTEGER NOT NULL DEFAULT 1,
    duplicates   INTEGER NOT NULL DEFAULT 1,
    last_seen_at INTEGER NOT NULL,
    promoted_to  TEXT,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    deleted_at   INTEGER,
    extras       TEXT    NOT NULL DEFAULT '{}',  -- what an API keeps with it, as JSON
    content      TEXT    NOT NULL
) STRICT;

INSERT INTO new_memories (id, uid, space_id, session_id, key, type, title, tags, content_hash,
                          revision, duplicates, last_seen_at, promoted_to, created_at, updated_at,
                          deleted_at, content)
SELECT id, uid, space_id, session_id, key, type, title, tags, content_hash,
       revision, duplicates, last_seen_at, promoted_to, created_at, updated_at,
       deleted_at, content
  FROM memories;

-- No id is given twice, although its memory is gone.
DELETE FROM sqlite_sequence WHERE name = 'new_memories';
INSERT INTO sqlite_sequence (name, seq)
SELECT 'new_memories', seq
  FROM sqlite_sequence
 WHERE name = 'memories';

DROP TABLE memories;
ALTER TABLE new_memories RENAME TO memories;

CREATE UNIQUE INDEX memories_at_key ON memories (space_id, key)
    WHERE key IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX memories_by_time ON memories (space_id, created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX memories_in_time ON memories (created_at, id)
    WHERE deleted_at IS NULL AND session_id IS NOT NULL;
CREATE INDEX memories_in_space ON memories (space_id, id) WHERE deleted_at IS NULL;
CREATE INDEX memories_by_hash ON memories (space_id, content_hash, created_at);
CREATE INDEX memories_in_session ON memories (session_id, space_id, deleted_at, id);
CREATE INDEX memories_in_store ON memories (space_id, uid)
    WHERE deleted_at IS NULL AND session_id IS NULL;

CREATE TABLE new_erasures (
    id            TEXT    PRIMARY KEY,
    kind          TEXT    NOT NULL CHECK (kind IN ('observation', 'project', 'redaction', 'store')),
    project       TEXT,  -- none for what happened in a store
    observations  INTEGER NOT NULL,
    revisions     INTEGER NOT NULL,
    sessions      INTEGER NOT NULL,
    erased_at     INTEGER NOT NULL,
    bytes_gone_at INTEGER,
    goes_on       INTEGER NOT NULL DEFAULT 0 CHECK (goes_on IN (0, 1))  -- in more transactions
) STRICT, WITHOUT ROWID;

INSERT INTO new_erasures (id, kind, project, observations, revisions, sessions, erased_at,
                          bytes_gone_at, goes_on)
SELECT id, kind, project, observations, revisions, sessions, erased_at, bytes_gone_at, goes_on
  FROM erasures;

DROP TABLE erasures;
ALTER TABLE new_erasures RENAME TO erasures;

CREATE INDEX erasures_pending ON erasures (id) WHERE bytes_gone_at IS NULL;
CREATE INDEX erasures_of_projects ON erasures (project, id) WHERE kind = 'project';

PRAGMA legacy_alter_table = OFF;

CREATE TABLE stores (
    space_id    INTEGER PRIMARY KEY REFERENCES spaces (id),
    uid         TEXT    NOT NULL UNIQUE,
    name        TEXT    NOT NULL,
    description TEXT    NOT NULL,
    metadata    TEXT    NOT NULL,
    entries     INTEGER NOT NULL DEFAULT 0,  -- live ones
    size        INTEGER NOT NULL DEFAULT 0,  -- bytes of their contents
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    archived_at INTEGER,
    erasure_id  TEXT    REFERENCES erasures (id)  -- it is deleted, and its rows are going
) STRICT;

CREATE INDEX stores_going ON stores (erasure_id) WHERE erasure_id IS NOT NULL;

-- What a store tells of the revisions of its memories. A redacted one may have lost all of it.
CREATE TABLE versions (
    uid         TEXT    PRIMARY KEY,
    store_id    INTEGER NOT NULL REFERENCES stores (space_id),
    memory_id   INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    number      INTEGER NOT NULL,
    path        TEXT,
    size        INTEGER,
    sha256      TEXT,
    author      TEXT,
    redacted_at INTEGER,
    redacted_by TEXT,
    UNIQUE (memory_id, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX versions_of_store ON versions (store_id, uid);
CREATE INDEX versions_of_entry ON versions (memory_id, uid);
