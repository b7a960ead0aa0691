-- How long a memory holds lies beside it: one without an end, a pin or a review has no row here.

CREATE TABLE lifecycles (
    memory_id    INTEGER PRIMARY KEY REFERENCES memories (id) ON DELETE CASCADE,
    space_id     INTEGER NOT NULL REFERENCES spaces (id),  -- the memory's
    expires_at   INTEGER,
    is_swept     INTEGER NOT NULL DEFAULT 0 CHECK (is_swept IN (0, 1)),  -- out of the index
    held_key     TEXT,  -- of an expired memory, when it has left the key to others
    pinned_at    INTEGER,
    review_at    INTEGER,
    confirmed_at INTEGER
) STRICT;

CREATE INDEX lifecycles_by_end ON lifecycles (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX lifecycles_swept ON lifecycles (expires_at) WHERE is_swept;
CREATE INDEX lifecycles_unswept ON lifecycles (expires_at)
    WHERE expires_at IS NOT NULL AND NOT is_swept;
CREATE INDEX lifecycles_by_pin ON lifecycles (space_id, pinned_at, memory_id)
    WHERE pinned_at IS NOT NULL;
CREATE INDEX lifecycles_by_review ON lifecycles (review_at) WHERE review_at IS NOT NULL;

CREATE TABLE supersessions (
    newer_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    older_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    at       INTEGER NOT NULL,  -- when it was made
    PRIMARY KEY (newer_id, older_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX supersessions_of_older ON supersessions (older_id, newer_id);

-- Pairs that looked alike when the later one was saved; the text is theirs.
CREATE TABLE lookalikes (
    later_id   INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    earlier_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    score      REAL    NOT NULL,
    at         INTEGER NOT NULL,  -- when it was found
    PRIMARY KEY (later_id, earlier_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX lookalikes_of_earlier ON lookalikes (earlier_id, later_id);

-- The index holds what is marked to be in it: no clock is asked, so that it can be checked.
DROP VIEW memory_text;

CREATE VIEW memory_text (id, space_id, area, partition, title, content, context, tags) AS
    SELECT m.id,
           s.id,
           s.area,
           s.partition,
           indexed_text(CAST(m.title AS BLOB)),
           indexed_text(CAST(m.content AS BLOB)),
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
     WHERE m.deleted_at IS NULL
           AND NOT EXISTS (SELECT 1 FROM lifecycles WHERE memory_id = m.id AND is_swept);
