-- A large import is stored in many short transactions. Its rows lie here until they are stored:
-- all of them before the import is accepted, and from then on those that are left.

CREATE TABLE imports (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    projects     TEXT    NOT NULL,  -- patterns of its caller, as JSON
    touched_at   INTEGER NOT NULL,  -- when a row was staged or stored last
    accepted_at  INTEGER,
    finished_at  INTEGER,
    staged       INTEGER NOT NULL DEFAULT 0,  -- rows
    size         INTEGER NOT NULL DEFAULT 0,  -- their bytes
    applied      INTEGER NOT NULL DEFAULT 0,  -- of them
    sessions     INTEGER NOT NULL DEFAULT 0,  -- that it stored
    observations INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Ordered by the import and by the place in it: both are in the number.
CREATE TABLE import_rows (
    number  INTEGER PRIMARY KEY,
    project TEXT NOT NULL,
    row     TEXT NOT NULL  -- JSON, without secrets
) STRICT;

CREATE INDEX import_rows_of_project ON import_rows (project);
