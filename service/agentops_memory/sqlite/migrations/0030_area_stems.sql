-- The stems of a project's own words, by which typos are looked for: a line for each first letter.
-- They are those of its memories up to one; a project without a row is given one in the background.
CREATE TABLE area_stems (
    area    INTEGER PRIMARY KEY,
    last_id INTEGER NOT NULL,
    stems   TEXT    NOT NULL
) STRICT;
