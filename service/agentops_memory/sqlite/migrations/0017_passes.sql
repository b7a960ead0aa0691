-- What the service makes of entries by itself: archives and merges, of what, and how to undo it.

-- A pass over a ref, by the number of its run.
CREATE TABLE passes (
    run       INTEGER PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    space_id  INTEGER NOT NULL,
    written   TEXT    NOT NULL,  -- JSON: the entries that it made, each as text
    replaced  INTEGER NOT NULL,  -- how many entries others stand for since
    undone_at INTEGER
) STRICT;

CREATE INDEX passes_of_ref ON passes (space_id, run);

-- Of which entries the text of an entry was made, or which it stands for; it outlives an undo.
CREATE TABLE derivations (
    memory_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    source_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    PRIMARY KEY (memory_id, source_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX derivations_of_source ON derivations (source_id, memory_id);

CREATE TABLE archives (
    memory_id INTEGER PRIMARY KEY REFERENCES memories (id) ON DELETE CASCADE,
    space_id  INTEGER NOT NULL,
    sources   INTEGER NOT NULL,  -- how many entries it was made of,
    first_at  INTEGER NOT NULL,  -- when the first of them was put,
    last_at   INTEGER NOT NULL   -- and the last
) STRICT;

CREATE INDEX archives_of_ref ON archives (space_id, memory_id);

-- A link has an end, too: an undo brings back what was replaced, and snapshots stay as they were.
CREATE TABLE ref_links (
    newer_id    INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    older_id    INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    made_after  INTEGER NOT NULL,  -- the last event before it was made
    ended_after INTEGER,           -- the last event before it ended
    pass        INTEGER,           -- the pass that made it
    seen        INTEGER NOT NULL DEFAULT 0,  -- how often the older one was seen, if that counts
    PRIMARY KEY (newer_id, older_id, made_after)
) STRICT, WITHOUT ROWID;

-- Until now a link was made with its newer entry, so a snapshot that has the entry has the link.
INSERT INTO ref_links (newer_id, older_id, made_after)
SELECT newer_id, older_id, 0
  FROM ref_supersessions;

DROP TABLE ref_supersessions;
ALTER TABLE ref_links RENAME TO ref_supersessions;
CREATE INDEX ref_supersessions_of_older ON ref_supersessions (older_id, newer_id);
CREATE INDEX ref_supersessions_of_pass ON ref_supersessions (pass) WHERE pass IS NOT NULL;
CREATE INDEX ref_supersessions_ended ON ref_supersessions (ended_after)
    WHERE ended_after IS NOT NULL;

-- What an entry was put as first, before it was rid of a secret: snapshots see it in its place.
ALTER TABLE ref_entries ADD COLUMN renews INTEGER;

-- Whom entries are about, in all refs.
CREATE INDEX ref_tags_of_subjects ON ref_tags (tag, memory_id)
    WHERE tag >= 'subject:' AND tag < 'subject;';

-- Which refs have changed since a pass has looked at all of it.
ALTER TABLE refs ADD COLUMN newest INTEGER NOT NULL DEFAULT 0;  -- the last memory put there
ALTER TABLE refs ADD COLUMN consolidated INTEGER NOT NULL DEFAULT 0;  -- the same, at the pass

UPDATE refs
   SET newest = e.newest
  FROM (SELECT space_id, max(memory_id) AS newest FROM ref_entries GROUP BY space_id) e
 WHERE e.space_id = refs.space_id;

DROP TRIGGER ref_entry_added;

CREATE TRIGGER ref_entry_added AFTER INSERT ON ref_entries
BEGIN
    UPDATE refs
       SET entries = min(max(entries, 0), 9007199254740991) + 1,
           size = min(max(size, 0), 9007199254740991) + NEW.size,
           newest = NEW.memory_id
     WHERE space_id = NEW.space_id;
END;
-- Commitments: conditions of entries, each of which is told of once.

CREATE TABLE commitments (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    uid        TEXT    NOT NULL UNIQUE,
    memory_id  INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    space_id   INTEGER NOT NULL,
    due_at     INTEGER,
    tag        TEXT,  -- of the entry that is waited for, where it has no time
    state      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    fired_at   INTEGER
) STRICT;

CREATE INDEX commitments_of_memory ON commitments (memory_id);
CREATE INDEX commitments_of_ref ON commitments (space_id, uid);
CREATE INDEX commitments_armed ON commitments (memory_id) WHERE state = 'armed';
CREATE INDEX commitments_by_time ON commitments (due_at)
    WHERE state = 'armed' AND due_at IS NOT NULL;
CREATE INDEX commitments_by_tag ON commitments (space_id, tag)
    WHERE state = 'armed' AND tag IS NOT NULL;

-- Proposals of hosts: artifacts that are inert until one is applied. Nothing removes one.

CREATE TABLE proposals (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    name        TEXT    NOT NULL UNIQUE,
    kind        TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    title       TEXT,
    rationale   TEXT,
    checksum    BLOB    NOT NULL,  -- SHA-256 of the artifact
    digest      BLOB    NOT NULL,  -- SHA-256 of its canonical form
    place       INTEGER NOT NULL,  -- the order in which artifacts came: the later repeats the earlier
    size        INTEGER NOT NULL,  -- bytes of its texts
    source_runs TEXT    NOT NULL,  -- JSON
    synthesizer TEXT,
    principal   TEXT,              -- the key that made it
    revision    INTEGER NOT NULL,  -- how often its texts were replaced
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    artifact    TEXT    NOT NULL  -- JSON, byte for byte what is installed; last, as it is long
) STRICT;

CREATE INDEX proposals_in_state ON proposals (state, id);
CREATE INDEX proposals_placed ON proposals (place);
CREATE INDEX proposals_equal ON proposals (kind, digest, place)
    WHERE state IN ('draft', 'revised', 'applied');
