-- What was erased is told by a receipt, which also says when its bytes are gone from the file.

CREATE TABLE erasures (
    id            TEXT    PRIMARY KEY,
    kind          TEXT    NOT NULL CHECK (kind IN ('observation', 'project', 'redaction')),
    project       TEXT    NOT NULL,
    observations  INTEGER NOT NULL,
    revisions     INTEGER NOT NULL,
    sessions      INTEGER NOT NULL,
    erased_at     INTEGER NOT NULL,
    bytes_gone_at INTEGER,
    goes_on       INTEGER NOT NULL DEFAULT 0 CHECK (goes_on IN (0, 1))  -- in more transactions
) STRICT, WITHOUT ROWID;

CREATE INDEX erasures_pending ON erasures (id) WHERE bytes_gone_at IS NULL;
CREATE INDEX erasures_of_projects ON erasures (project, id) WHERE kind = 'project';

CREATE TABLE erased (
    memory_id  INTEGER NOT NULL,
    erasure_id TEXT    NOT NULL REFERENCES erasures (id),
    PRIMARY KEY (memory_id, erasure_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX erased_by_erasure ON erased (erasure_id, memory_id);

-- Partitions of the index in which deleted words may lie, and how often that was noted.
CREATE TABLE purges (
    partition INTEGER PRIMARY KEY,
    notes     INTEGER NOT NULL DEFAULT 1
) STRICT;

INSERT INTO purges (partition)
SELECT number
  FROM partitions;

-- A row says that the file was used before deleted text was written over: its free pages may
-- hold remains, until it is written anew.
CREATE TABLE remains (
    one INTEGER PRIMARY KEY CHECK (one = 1)
) STRICT;

INSERT INTO remains (one)
SELECT 1
 WHERE EXISTS (SELECT 1 FROM sessions) OR EXISTS (SELECT 1 FROM sqlite_sequence);

-- A session goes only when no memory names it, live or deleted: both are found by it now.
DROP INDEX memories_in_session;
CREATE INDEX memories_in_session ON memories (session_id, space_id, deleted_at, id);
