-- Intents and their tasks, which working memory is bound to; who takes part in them; and archives.

CREATE TABLE intents (
    id         TEXT    NOT NULL PRIMARY KEY,
    created_by TEXT    NOT NULL,
    details    TEXT    NOT NULL,  -- JSON: what nothing is asked by
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE tasks (
    id           TEXT    NOT NULL PRIMARY KEY,
    intent       TEXT    NOT NULL REFERENCES intents (id),
    parent       TEXT,
    agent        TEXT,  -- that it is assigned to
    status       TEXT    NOT NULL,
    inherits     INTEGER NOT NULL CHECK (inherits IN (0, 1)),  -- whether it reads its parent's
    policy       TEXT,  -- JSON
    details      TEXT    NOT NULL,  -- JSON
    version      INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    started_at   INTEGER,
    completed_at INTEGER
) STRICT;

CREATE INDEX tasks_of_intent ON tasks (intent, created_at);
CREATE INDEX tasks_of_agent ON tasks (agent, intent) WHERE agent IS NOT NULL;
CREATE INDEX tasks_open_of_agent ON tasks (agent)  -- the few that others' memory is read by
    WHERE NOT status IN ('cancelled', 'completed', 'failed', 'skipped');
CREATE INDEX tasks_open_of_intent ON tasks (intent)
    WHERE NOT status IN ('cancelled', 'completed', 'failed', 'skipped');
CREATE INDEX tasks_completed ON tasks (completed_at) WHERE completed_at IS NOT NULL;

CREATE TABLE coordinators (
    id         TEXT    NOT NULL PRIMARY KEY,
    intent     TEXT    NOT NULL REFERENCES intents (id),
    agent      TEXT    NOT NULL,
    is_ended   INTEGER NOT NULL CHECK (is_ended IN (0, 1)),
    details    TEXT    NOT NULL,  -- JSON, its guardrails too
    version    INTEGER NOT NULL,
    granted_at INTEGER NOT NULL,
    expires_at INTEGER
) STRICT;

CREATE INDEX coordinators_of_intent ON coordinators (intent, granted_at);
CREATE INDEX coordinators_of_agent ON coordinators (agent) WHERE NOT is_ended;

CREATE TABLE grants (
    id         TEXT    NOT NULL PRIMARY KEY,
    intent     TEXT    NOT NULL REFERENCES intents (id),
    agent      TEXT    NOT NULL,
    permission TEXT    NOT NULL,
    reason     TEXT,
    granted_by TEXT    NOT NULL,
    granted_at INTEGER NOT NULL,
    expires_at INTEGER
) STRICT;

CREATE INDEX grants_of_intent ON grants (intent, granted_at);
CREATE INDEX grants_of_agent ON grants (agent);

-- What of its scope an entry is bound to: 0 nothing, 1 its intent, 2 its task, in this attempt.
ALTER TABLE agent_memories ADD COLUMN binding INTEGER NOT NULL DEFAULT 0;
ALTER TABLE agent_memories ADD COLUMN attempt INTEGER;

CREATE INDEX agent_memories_bound ON agent_memories (agent) WHERE binding = 2;

-- The entries of an archive that lie where they lay: nobody sees them any more but its event.
CREATE TABLE pending_archives (
    event_id INTEGER PRIMARY KEY REFERENCES events (id) ON DELETE CASCADE,
    task     TEXT    NOT NULL,
    attempt  INTEGER NOT NULL,
    agent    TEXT    NOT NULL,
    first    INTEGER NOT NULL,  -- memories
    last     INTEGER NOT NULL,
    size     INTEGER NOT NULL  -- bytes of their values
) STRICT;

-- An event stands in the log of an intent that it is bound to, and in none that it merely names.
ALTER TABLE agent_events ADD COLUMN binding INTEGER NOT NULL DEFAULT 0;

CREATE INDEX agent_events_of_intent ON agent_events (intent, event_id) WHERE binding > 0;

-- Events of memory are kept for a time of their own; the rest is the log of intents.
DROP INDEX events_in_time;
CREATE INDEX events_of_memory ON events (at)
    WHERE type >= 'memory.' AND type < 'memory/' AND type <> 'memory.archived';
CREATE INDEX events_of_log ON events (at)
    WHERE NOT (type >= 'memory.' AND type < 'memory/' AND type <> 'memory.archived');
