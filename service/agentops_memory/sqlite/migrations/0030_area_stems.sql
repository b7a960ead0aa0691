-- The stems of a project, by which typos are looked for: a line for each first letter, a mark behind
-- those that only borrowed words have. They are those of its memories up to one; a project without
-- a row is given one in the background.
CREATE TABLE area_stems (
    area    INTEGER PRIMARY KEY,
    last_id INTEGER NOT NULL,
    stems   TEXT    NOT NULL
) STRICT;
