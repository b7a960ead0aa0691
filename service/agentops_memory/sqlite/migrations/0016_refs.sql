-- Refs: memories under a reference of a host, in a space of no project; and the runs of hosts.
-- Projects and stores pay nothing for them.

CREATE TABLE refs (
    space_id INTEGER PRIMARY KEY REFERENCES spaces (id),
    ref      TEXT    NOT NULL UNIQUE,
    entries  INTEGER NOT NULL DEFAULT 0,  -- undeleted; kept by triggers, as the bytes are
    size     INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE ref_entries (
    memory_id     INTEGER PRIMARY KEY REFERENCES memories (id) ON DELETE CASCADE,
    space_id      INTEGER NOT NULL REFERENCES refs (space_id),
    name          TEXT,  -- the id that the host gave
    created_at    INTEGER NOT NULL,
    size          INTEGER NOT NULL,  -- bytes of its content
    length        INTEGER NOT NULL,  -- code points
    ends_at       INTEGER,  -- when it expires, for what is asked of the past
    deleted_after INTEGER,  -- the last event before its deletion
    run           TEXT,
    node          TEXT,
    agent         TEXT,
    method        TEXT    NOT NULL
) STRICT;

CREATE INDEX ref_entries_in_time ON ref_entries (space_id, created_at, memory_id)
    WHERE deleted_after IS NULL;
CREATE INDEX ref_entries_deleted ON ref_entries (space_id, deleted_after)
    WHERE deleted_after IS NOT NULL;
CREATE INDEX ref_entries_deleted_in_time ON ref_entries (deleted_after)
    WHERE deleted_after IS NOT NULL;
CREATE INDEX ref_entries_named ON ref_entries (space_id, name) WHERE name IS NOT NULL;

CREATE INDEX ref_entries_by_end ON ref_entries (space_id, ends_at) WHERE ends_at IS NOT NULL;

-- What was erased, as long as a run is known that may have seen it.
CREATE TABLE ref_losses (
    memory_id     INTEGER PRIMARY KEY,
    space_id      INTEGER NOT NULL,
    ends_at       INTEGER,
    deleted_after INTEGER NOT NULL  -- the last event at which it was there
) STRICT;

CREATE INDEX ref_losses_of_ref ON ref_losses (space_id, memory_id);

-- Which entries an entry has replaced, apart from supersessions: what projects have is asked of
-- these alone.
CREATE TABLE ref_supersessions (
    newer_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    older_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    at       INTEGER NOT NULL,  -- when it was made
    PRIMARY KEY (newer_id, older_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX ref_supersessions_of_older ON ref_supersessions (older_id, newer_id);

CREATE TABLE ref_tags (
    memory_id  INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    space_id   INTEGER NOT NULL,
    tag        TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (memory_id, tag)
) STRICT, WITHOUT ROWID;

CREATE INDEX ref_tags_in_time ON ref_tags (space_id, tag, created_at, memory_id);

-- What is out of range in a damaged file stays in it: a sum goes on from the nearest that can be.
CREATE TRIGGER ref_entry_added AFTER INSERT ON ref_entries
BEGIN
    UPDATE refs
       SET entries = min(max(entries, 0), 9007199254740991) + 1,
           size = min(max(size, 0), 9007199254740991) + NEW.size
     WHERE space_id = NEW.space_id;
END;

CREATE TRIGGER ref_entry_measured AFTER UPDATE OF size ON ref_entries
WHEN NEW.deleted_after IS NULL
BEGIN
    UPDATE refs
       SET size = min(max(min(max(size, 0), 9007199254740991)
                          - min(max(OLD.size, 0), 9007199254740991)
                          + min(max(NEW.size, 0), 9007199254740991), 0), 9007199254740991)
     WHERE space_id = NEW.space_id;
END;

CREATE TRIGGER ref_entry_deleted AFTER UPDATE OF deleted_after ON ref_entries
WHEN OLD.deleted_after IS NULL AND NEW.deleted_after IS NOT NULL
BEGIN
    UPDATE refs
       SET entries = max(min(max(entries, 0), 9007199254740991) - 1, 0),
           size = max(min(max(size, 0), 9007199254740991)
                      - min(max(OLD.size, 0), 9007199254740991), 0)
     WHERE space_id = OLD.space_id;
END;

CREATE TRIGGER ref_entry_erased AFTER DELETE ON ref_entries
BEGIN
    UPDATE refs
       SET entries = max(min(max(entries, 0), 9007199254740991) - (OLD.deleted_after IS NULL), 0),
           size = max(min(max(size, 0), 9007199254740991)
                      - min(max(OLD.size, 0), 9007199254740991) * (OLD.deleted_after IS NULL), 0)
     WHERE space_id = OLD.space_id;
    INSERT INTO ref_losses (memory_id, space_id, ends_at, deleted_after)
    SELECT OLD.memory_id, OLD.space_id, OLD.ends_at,
           coalesce(OLD.deleted_after, (SELECT max(id) FROM run_events), 0)
     WHERE EXISTS (SELECT 1 FROM runs)
        ON CONFLICT DO NOTHING;
END;

CREATE TABLE runs (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    name          TEXT    NOT NULL UNIQUE,
    kind          TEXT    NOT NULL,
    status        TEXT    NOT NULL,
    agent         TEXT,
    workflow      TEXT,
    refs          TEXT    NOT NULL,  -- JSON
    source        TEXT,
    from_sequence INTEGER NOT NULL,
    log_offset    INTEGER NOT NULL,  -- its snapshot: the event at which memory is seen,
    high          INTEGER NOT NULL,  -- the last memory then,
    at            INTEGER NOT NULL,  -- and when it was
    secrets       TEXT    NOT NULL,  -- JSON: how many values each id has
    wrote         TEXT    NOT NULL,  -- JSON: the refs that it has written to
    started_at    INTEGER NOT NULL,
    heard_at      INTEGER NOT NULL,
    ended_at      INTEGER
) STRICT;

CREATE INDEX runs_open ON runs (high, log_offset) WHERE ended_at IS NULL;
CREATE INDEX runs_open_since ON runs (log_offset) WHERE ended_at IS NULL;
CREATE INDEX runs_by_end ON runs (ended_at) WHERE ended_at IS NOT NULL;

-- What happened, in the order in which it was committed: there is one writer.
CREATE TABLE run_events (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    uid      TEXT    NOT NULL,
    run      INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    sequence INTEGER NOT NULL,
    type     TEXT    NOT NULL,
    payload  TEXT    NOT NULL,
    node     TEXT,
    at       INTEGER NOT NULL,
    copied   INTEGER,           -- the event that it is a copy of
    high     INTEGER NOT NULL,  -- the last memory then
    UNIQUE (run, sequence)
) STRICT;
