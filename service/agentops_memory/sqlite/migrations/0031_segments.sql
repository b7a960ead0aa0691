-- What the index in memory holds of an area, as flat arrays, so that loading it takes a microsecond
-- a memory. It has the area's memories up to one; expiries, pins and supersessions are not in it.
-- Derived; an area without a row, or with few of its memories, is given one in the background.
DROP TABLE area_stems;

CREATE TABLE area_stems (
    area            INTEGER PRIMARY KEY,
    state           INTEGER NOT NULL,  -- a random number: it tells a writer that nothing changed
    last_id         INTEGER NOT NULL,  -- 0 without a segment
    memories        INTEGER NOT NULL,
    words           INTEGER NOT NULL,
    stems           BLOB    NOT NULL,  -- an index, and a line for each two first letters
    counts          BLOB    NOT NULL,  -- of the memories with each stem
    counts_checksum INTEGER NOT NULL,
    head            TEXT    NOT NULL,
    arrays          BLOB    NOT NULL,
    checksum        INTEGER NOT NULL
) STRICT;

-- Changes of words remove the row, too.
CREATE TRIGGER memory_moved AFTER UPDATE OF space_id, session_id, created_at ON memories BEGIN
    DELETE FROM area_stems
     WHERE area IN (SELECT area FROM spaces WHERE id IN (OLD.space_id, NEW.space_id));
END;

CREATE TRIGGER space_moved AFTER UPDATE OF area ON spaces BEGIN
    DELETE FROM area_stems WHERE area IN (OLD.area, NEW.area);
END;

CREATE INDEX lifecycles_in_space ON lifecycles (space_id)
    WHERE expires_at IS NOT NULL OR pinned_at IS NOT NULL;
