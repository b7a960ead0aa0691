-- Agents' memory: an entry is a memory in a space that belongs to no project and to no store, with
-- a row beside it. Projects and stores pay nothing for it.

CREATE TABLE agent_spaces (
    space_id  INTEGER PRIMARY KEY REFERENCES spaces (id),
    tier      TEXT NOT NULL,
    agent     TEXT NOT NULL,  -- empty: of no agent
    namespace TEXT NOT NULL,
    UNIQUE (tier, agent, namespace)
) STRICT;

CREATE INDEX agent_spaces_of_agent ON agent_spaces (agent, namespace);

CREATE TABLE agent_memories (
    memory_id     INTEGER PRIMARY KEY REFERENCES memories (id) ON DELETE CASCADE,
    tier          TEXT    NOT NULL,
    agent         TEXT    NOT NULL,  -- whose it is; empty: its namespace's
    created_by    TEXT    NOT NULL,
    task          TEXT,
    intent        TEXT,
    is_pinned     INTEGER NOT NULL CHECK (is_pinned IN (0, 1)),
    priority      INTEGER NOT NULL,
    sensitivity   TEXT,
    curated_by    TEXT,
    size          INTEGER NOT NULL,
    ttl           TEXT,
    is_own_expiry INTEGER NOT NULL CHECK (is_own_expiry IN (0, 1)),  -- or the ttl's
    accessed_at   INTEGER NOT NULL
) STRICT;

CREATE INDEX agent_memories_by_victim
    ON agent_memories (tier, agent, is_pinned, priority, accessed_at, memory_id);
CREATE INDEX agent_memories_of_task ON agent_memories (task) WHERE task IS NOT NULL;

-- What an operator has said of an agent; of most there is nothing.
CREATE TABLE agents (
    name              TEXT    NOT NULL PRIMARY KEY,
    episodic_capacity INTEGER NOT NULL
) STRICT;

CREATE TABLE namespaces (
    name           TEXT    NOT NULL PRIMARY KEY,
    default_access INTEGER NOT NULL,
    version        INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL
) STRICT;

CREATE TABLE namespace_access (
    namespace TEXT    NOT NULL REFERENCES namespaces (name) ON DELETE CASCADE,
    agent     TEXT    NOT NULL,
    access    INTEGER NOT NULL,
    PRIMARY KEY (namespace, agent)
) STRICT;

-- What happened, in the order in which it was committed: there is one writer.
CREATE TABLE events (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    uid     TEXT    NOT NULL UNIQUE,
    type    TEXT    NOT NULL,
    payload TEXT    NOT NULL,
    at      INTEGER NOT NULL
) STRICT;

CREATE INDEX events_in_time ON events (at);

CREATE TABLE agent_events (
    event_id INTEGER PRIMARY KEY REFERENCES events (id) ON DELETE CASCADE,
    agent    TEXT NOT NULL,
    actor    TEXT,
    task     TEXT,
    intent   TEXT
) STRICT;

CREATE INDEX agent_events_of_agent ON agent_events (agent, event_id);

-- A space below the first area is not in the index.
DROP VIEW memory_text;

CREATE VIEW memory_text (id, space_id, area, partition, title, content, context, tags) AS
    SELECT m.id,
           s.id,
           s.area,
           s.partition,
           indexed_text(CAST(m.title AS BLOB)),
           CASE WHEN s.kind IN ('episodic', 'semantic')
                THEN indexed_value(CAST(m.content AS BLOB))
                ELSE indexed_text(CAST(m.content AS BLOB))
           END,
           CASE WHEN borrows(CAST(m.content AS BLOB))
                THEN borrowed((SELECT CAST(n.content AS BLOB)
                                 FROM memories n INDEXED BY memories_in_session
                                WHERE n.session_id = m.session_id AND n.space_id = m.space_id
                                      AND n.id < m.id AND n.deleted_at IS NULL
                                      AND NOT EXISTS (SELECT 1
                                                        FROM lifecycles
                                                       WHERE memory_id = n.id AND is_swept)
                             ORDER BY n.id DESC
                                LIMIT 1 OFFSET 1),
                              (SELECT CAST(n.content AS BLOB)
                                 FROM memories n INDEXED BY memories_in_session
                                WHERE n.session_id = m.session_id AND n.space_id = m.space_id
                                      AND n.id < m.id AND n.deleted_at IS NULL
                                      AND NOT EXISTS (SELECT 1
                                                        FROM lifecycles
                                                       WHERE memory_id = n.id AND is_swept)
                             ORDER BY n.id DESC
                                LIMIT 1))
                ELSE ''
           END,
           indexed_tags(CAST(m.tags AS BLOB))
      FROM spaces s
      CROSS JOIN memories m INDEXED BY memories_in_space ON m.space_id = s.id
     WHERE s.area >= 0 AND m.deleted_at IS NULL
           AND NOT EXISTS (SELECT 1 FROM lifecycles WHERE memory_id = m.id AND is_swept);

-- What an erasure may be is known to the program alone: a new kind is no new table.
PRAGMA legacy_alter_table = ON;

CREATE TABLE new_erasures (
    id            TEXT    PRIMARY KEY,
    kind          TEXT    NOT NULL,
    project       TEXT,  -- none for what happened in no project
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
